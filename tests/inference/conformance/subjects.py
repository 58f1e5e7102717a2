"""The engines that the suite holds to one contract, and what each declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from inference.compact.config.shape import read_shape
from inference.compact.native.choice import reason_against
from inference.compact.options import CompactOptions
from inference.contract.capabilities import Capability
from inference.engines import compact, echo, embed
from inference.engines.base import Engine
from inference.engines.embed import EmbedOptions
from inference.engines.remote import engine as remote
from inference.engines.remote.kinds import STANDARD
from inference.engines.remote.server import RemoteOptions
from tests.suite.summary import left_out
from tests.support.shipped import SHIPPED

CREDITS = 4
SERVER_KEY = "sk-real-server"
BLOCK_SIZE = 32
# Four long answers do not fit into so many.
BLOCKS = 20
ECHO_TOKENS_PER_S = 200.0


@dataclass(frozen=True)
class Subject:
    """One engine with four credits. If it generates from token ids, it serves the shipped model
    with a small window and cache.

    `queues`: it holds back jobs that find no room, and says so. `prefills_in_parts`: it reports
    steps while a prompt is under way. `processes`: it runs in some of its own.
    """

    name: str
    capabilities: frozenset[Capability]
    make: Callable[[pytest.FixtureRequest], Engine]
    queues: bool = True
    prefills_in_parts: bool = True
    processes: bool = False

    def __str__(self) -> str:
        return self.name


def _compact(
    kernels: str, dtype: str, speculate: str = "on", overlap: str = "off"
) -> Callable[[pytest.FixtureRequest], Engine]:
    options = CompactOptions(
        device="cpu",
        dtype=dtype,
        kernels=kernels,
        kv_blocks=BLOCKS,
        block_size=BLOCK_SIZE,
        # Small steps, so that a prompt takes several.
        step_tokens=64,
        mixed_prefill_tokens=64,
        running_max=CREDITS,
        threads=1,
        speculate=speculate,
        overlap=overlap,
    )
    return lambda request: compact.CompactEngine(request.getfixturevalue("folder"), options)


def _echo(request: pytest.FixtureRequest) -> Engine:
    options = echo.EchoOptions(tokens_per_s=ECHO_TOKENS_PER_S, credits=CREDITS, kv_blocks=BLOCKS)
    return echo.EchoEngine(request.getfixturevalue("folder"), options)


def _embed(request: pytest.FixtureRequest) -> Engine:
    # Few tokens a step, so that many inputs take many.
    options = EmbedOptions(device="cpu", dtype="float32", step_tokens=20, running_max=CREDITS)
    return embed.EmbedEngine(request.getfixturevalue("encoder"), options)


def _remote(request: pytest.FixtureRequest) -> Engine:
    server = request.getfixturevalue("vllm_http")
    options = RemoteOptions(url=server.url, name=SHIPPED.name, key=SERVER_KEY, credits=CREDITS)
    return remote.RemoteEngine(options)


COMPACT = frozenset(compact.CAPABILITIES) | {Capability.GRAMMAR, Capability.SPECULATION}
SUBJECTS = [
    Subject("compact-torch", COMPACT, _compact("torch", "float32")),
    # A step ahead of its outputs, as on a GPU.
    Subject(
        "compact-ahead",
        COMPACT - {Capability.SPECULATION},
        _compact("torch", "float32", speculate="off", overlap="on"),
    ),
    Subject("echo", frozenset(echo.CAPABILITIES), _echo, queues=False, prefills_in_parts=False),
    Subject("embed", frozenset(embed.CAPABILITIES), _embed),
    Subject(
        "remote",
        # What a server adds of its own accord: vLLM separates the caches of tenants, and takes more
        # fields than others.
        frozenset(STANDARD)
        | {
            Capability.IGNORE_EOS,
            Capability.MIN_TOKENS,
            Capability.REPETITION_PENALTY,
            Capability.SALT,
            Capability.STOP_TOKENS,
            Capability.TOKENIZES,
        },  # fmt: skip
        _remote,
        queues=False,
        prefills_in_parts=False,
        processes=True,
    ),
]
if reason := reason_against(read_shape(SHIPPED), BLOCK_SIZE):
    left_out("conformance of the native compact engine", reason)
else:
    SUBJECTS.append(Subject("compact-native", COMPACT, _compact("native", "bfloat16")))


def all_subjects() -> pytest.MarkDecorator:
    """Every engine."""
    return _mark(SUBJECTS)


def declaring(*needed: Capability) -> pytest.MarkDecorator:
    """The engines that generate from token ids and declare all of these."""
    wanted = {Capability.TOKENS, *needed}
    return _mark([each for each in SUBJECTS if each.capabilities.issuperset(wanted)])


def lacking(capability: Capability) -> list[Subject]:
    """The engines that generate from token ids and do not declare it."""
    return [
        each
        for each in SUBJECTS
        if Capability.TOKENS in each.capabilities and capability not in each.capabilities
    ]


def queueing() -> pytest.MarkDecorator:
    """Those that hold jobs back."""
    return _mark([each for each in declared(Capability.TOKENS) if each.queues])


def declared(capability: Capability) -> list[Subject]:
    """The engines that declare it."""
    return [each for each in SUBJECTS if capability in each.capabilities]


def _mark(subjects: list[Subject]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("subject", subjects, ids=str)
