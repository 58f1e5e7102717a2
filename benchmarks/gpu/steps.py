"""Single steps of the engine without the node around it: decoding and prefill."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median

from inference.compact.attention.fused import decode_fused, prefill_fused
from inference.compact.load.placement import Placement
from inference.compact.options import CompactOptions
from inference.compact.run.eager import EagerModel
from inference.compact.run.graphs import RecordedModel
from inference.compact.run.loop import StepLoop
from inference.compact.run.roofline import Work
from inference.compact.run.runner import Runner
from inference.compact.schedule.blocks import BlockPool
from inference.compact.schedule.outputs import StopRules
from inference.compact.schedule.scheduler import Scheduler
from inference.contract.frames import Job, Sampling

BATCHES = (1, 8, 64)
PROMPT_TOKENS = 1024
DECODE_STEPS = 100
WARM_STEPS = 10
# Prompts of a step and their length.
PREFILLS = ((1, 1024), (8, 1024), (1, 8192))
PREFILL_TOKENS = 8192
PREFILL_REPEATS = 5
# In which a full batch is prefilled.
PREFILL_STEPS_MAX = 50
BLOCK_SIZE = 32
KV_BLOCKS = 3000
VARIANTS = ("triton+graphs", "triton", "sdpa")
OPTIONS = CompactOptions(
    device="cuda", dtype="bfloat16", block_size=BLOCK_SIZE, kv_blocks=KV_BLOCKS,
    step_tokens=PREFILL_TOKENS, mixed_prefill_tokens=PREFILL_TOKENS, running_max=max(BATCHES),
    speculate="off",
)  # fmt: skip


@contextmanager
def variant(runner: Runner, name: str) -> Iterator[None]:
    """The runner with another way to compute, for as long as this lasts."""
    whole = runner.model
    assert isinstance(whole, RecordedModel)
    decoder = whole.eager.decoder
    kernels = decoder.kernels
    if name != "triton+graphs":
        runner.model = EagerModel(decoder, whole.eager.upload)
    if name == "sdpa":
        decoder.kernels = replace(
            kernels,
            decode=decode_fused,
            prefill=prefill_fused,
            decode_masks=True,
            prefill_masks=True,
            together=None,
        )
    yield
    runner.model, decoder.kernels = whole, kernels


def decode(
    runner: Runner, placement: Placement, work: Work, batch: int, read_gb_s: float
) -> dict[str, float]:
    """Median step of a full batch, and its share of what reading its bytes alone would take."""
    loop = _loop(runner, placement, work)
    for number in range(batch):
        _accept(loop, number, PROMPT_TOKENS, WARM_STEPS + DECODE_STEPS + PREFILL_STEPS_MAX)
    while any(each.generated == 0 for each in loop.scheduler.running) or loop.scheduler.queue:
        loop.step()
    times = []
    tokens = 0
    for number in range(WARM_STEPS + DECODE_STEPS):
        began = time.perf_counter()
        loop.step()
        if number >= WARM_STEPS:
            times.append(time.perf_counter() - began)
            tokens += sum(each.computed_tokens for each in loop.scheduler.running)
    step_s = median(times)
    floor_s = work.step_bytes([tokens // len(times)]) / read_gb_s / 1e9
    return {
        "step_ms": round(step_s * 1e3, 3),
        "tok_s": round(batch / step_s, 1),
        "roofline_share": round(floor_s / step_s, 3),
    }


def prefill(
    runner: Runner, placement: Placement, work: Work, prompts: int, length: int, tflop_s: float
) -> dict[str, float]:
    """Median step over whole prompts, and its share of the time that its products need alone."""
    times = []
    for repeat in range(PREFILL_REPEATS + 1):
        loop = _loop(runner, placement, work)
        for number in range(prompts):
            _accept(loop, repeat * prompts + number, length, 1)
        began = time.perf_counter()
        step, _ = loop.step()
        times.append(time.perf_counter() - began)
        assert len(step.outputs) == prompts
    step_s = median(times[1:])
    floor_s = prompts * work.prefill_flop(length) / tflop_s / 1e12
    return {
        "step_ms": round(step_s * 1e3, 2),
        "tok_s": round(prompts * length / step_s),
        "mfu": round(floor_s / step_s, 3),
    }


def _loop(runner: Runner, placement: Placement, work: Work) -> StepLoop:
    pool = BlockPool(placement.kv_blocks, placement.block_size)
    rules = StopRules(frozenset(), work.shape.context_window)
    return StepLoop(runner, Scheduler(pool, OPTIONS), rules, lambda: time.monotonic_ns() // 1000)


def _accept(loop: StepLoop, number: int, length: int, count: int) -> None:
    draw = random.Random(number)
    job = Job(
        request=number.to_bytes(16),
        model="random",
        tokens=draw.choices(range(300, 100_000), k=length),
        salt=b"\1" * 16,
        hashes=b"",
        sampling=Sampling(max_tokens=count, temperature=0.0, ignore_eos=True),
        stop_tokens=[],
        deadline_ms=600_000,
    )
    loop.accept(job, loop.clock_us())
