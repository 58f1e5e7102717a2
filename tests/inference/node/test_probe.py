"""What is measured of an engine before its node serves: how it computes, and how fast, in short."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from inference.compact.options import CompactOptions
from inference.contract.frames import Job
from inference.contract.roofline import SLOW_CHARS_MAX, ComputePath
from inference.engines.compact import CompactEngine
from inference.engines.echo import EchoEngine, EchoOptions
from inference.errors import JobRefused
from inference.node.assets import ModelAssets
from inference.node.probe import (
    MEASURED_PROMPT_MAX,
    MEASURED_PROMPT_MIN,
    MEASURED_TOKENS,
    Probe,
    check,
)
from tests.support.fleet import MODEL, World, fleet_server, make_model, running_node
from tests.support.shipped import SHIPPED
from tests.support.waiting import until

QUICK_S, SLOW_S = 0.001, 5.0


class Noted(EchoEngine):
    """Says how it computes, and keeps its jobs; takes none that is `refused`."""

    def __init__(self, folder: Path, slow: str = "", *, tokens_per_s: float = 0.0) -> None:
        super().__init__(make_model(folder), EchoOptions(tokens_per_s=tokens_per_s))
        path = ComputePath(kernels="echo", slow=slow)
        self.facts = msgspec.structs.replace(self.facts, path=path)
        self.jobs: list[Job] = []
        self.refused = False

    def submit(self, job: Job) -> None:
        """Note it first."""
        self.jobs.append(job)
        if self.refused:
            raise JobRefused("full", "no room")
        super().submit(job)

    async def measured(self, token_s: float) -> ComputePath:
        """As a node would have it, whose first token took so long."""
        probe = Probe(self.facts)
        await self.start(probe)
        try:
            path = await probe.measure(self, token_s)
        finally:
            await self.close()
        assert path is not None
        return path


async def test_the_check_says_what_this_machine_does_with_a_model() -> None:
    engine = CompactEngine(SHIPPED, CompactOptions(device="cpu", kernels="torch"))
    facts = dict(line.split(": ", 1) for line in await check(engine, ModelAssets(SHIPPED)))
    assert facts["kernels"] == "torch"
    assert facts["slow"] == "no native code: torch was asked for"
    assert int(facts["context_window"]) == engine.facts.context_window
    for name, unit in (
        ("decode", "tokens/s, one request alone"),
        ("prefill", "tokens/s, one request alone"),
        ("memory", "GB/s read (torch, at its start: "),
    ):
        figure, told = facts[name].split(" ", 1)
        assert float(figure.replace(",", "")) > 0 and told.startswith(unit)


async def test_one_prompt_and_some_tokens_are_measured(tmp_path: Path) -> None:
    engine = Noted(tmp_path)
    await engine.measured(QUICK_S)
    (job,) = engine.jobs
    assert len(job.tokens) == len(set(job.tokens)) == MEASURED_PROMPT_MAX
    assert job.sampling.max_tokens == MEASURED_TOKENS


async def test_a_slow_engine_is_measured_no_longer(tmp_path: Path) -> None:
    engine = Noted(tmp_path, tokens_per_s=10.0)
    path = await engine.measured(SLOW_S)
    (job,) = engine.jobs
    assert len(job.tokens) == MEASURED_PROMPT_MIN
    assert path.decode_tokens_s is not None and path.decode_tokens_s >= 1 / SLOW_S


async def test_an_engine_too_slow_for_two_tokens_has_the_rate_of_its_first(tmp_path: Path) -> None:
    path = await Noted(tmp_path, tokens_per_s=0.5).measured(SLOW_S)
    assert path.decode_tokens_s == 1 / SLOW_S
    assert path.prefill_tokens_s is None


async def test_what_cannot_be_measured_does_not_keep_a_node_down(tmp_path: Path) -> None:
    engine = Noted(tmp_path, "cc\x1b failed: " + "x" * 1_000)
    engine.refused = True
    path = await engine.measured(QUICK_S)
    assert path.kernels == "echo" and path.decode_tokens_s is None
    assert path.slow.startswith("cc failed: x") and len(path.slow) == SLOW_CHARS_MAX


async def test_an_engine_that_says_nothing_of_itself_is_not_measured(tmp_path: Path) -> None:
    engine = EchoEngine(make_model(tmp_path))
    assert await Probe(engine.facts).measure(engine, QUICK_S) is None


@pytest.mark.parametrize("told", [True, False])
async def test_a_node_tells_its_gateways(tmp_path: Path, told: bool) -> None:
    world = World()
    engine = Noted(tmp_path, "no compiler")
    if not told:
        engine.facts = msgspec.structs.replace(engine.facts, path=None)
    async with (
        fleet_server(world) as server,
        running_node(engine, server.url, tmp_path / MODEL),
    ):
        await until(lambda: world.fleet.candidates(MODEL))
        path = world.fleet.candidates(MODEL)[0].hello.path
    # The second of them is the measured one; a node that is idle for long makes single tokens.
    assert len(engine.jobs) == 1 + told
    assert (path and (path.kernels, path.slow)) == (("echo", "no compiler") if told else None)
