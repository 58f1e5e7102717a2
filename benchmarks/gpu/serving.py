"""The reference workload through the whole engine: queue, scheduler, sampler and its thread."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.load import percentile
from benchmarks.sides.closed_loop import ClosedLoop
from benchmarks.workloads import reference
from inference.compact.config.shape import ModelShape
from inference.compact.load.placement import Placement
from inference.compact.options import CompactOptions
from inference.compact.run.runner import Runner
from inference.engines.compact import CompactEngine

STEP_TOKENS = 8192
MIXED_TOKENS = 2048
# Requests of each width.
WIDTHS = {1: 8, 8: 32, 50: 150}
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 0.8, "top_p": 0.95},
}


class _Loaded(CompactEngine):
    """An engine around a runner that is there already."""

    def __init__(self, path: Path, options: CompactOptions, runner: Runner) -> None:
        super().__init__(path, options)
        self._runner = runner

    def load(self, folder: Path, shape: ModelShape, placement: Placement) -> Runner:
        """The same for every engine of a model."""
        return self._runner


def serve(
    path: Path, options: CompactOptions, runner: Runner, vocabulary: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Figures by sampling and width; a step's sizes are those that `docs/operations.md` advises."""
    options = replace(options, step_tokens=STEP_TOKENS, mixed_prefill_tokens=MIXED_TOKENS)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, sampling in SAMPLINGS.items():
        engine = _Loaded(path, options, runner)
        closed = ClosedLoop(engine, sampling)
        _run(closed, vocabulary, 8, 8, f"warm {name}")
        found[name] = {
            str(width): _run(closed, vocabulary, count, width, f"{name} {width}")
            for width, count in WIDTHS.items()
        }
        closed.loop.run_until_complete(engine.close())
        closed.loop.run_until_complete(asyncio.sleep(0))
        closed.loop.close()
    return found


def _run(closed: ClosedLoop, vocabulary: int, count: int, width: int, run: str) -> dict[str, float]:
    work = reference(vocabulary, count, width, run=run)
    answer = closed.run(work.prompts, work.outputs, width)
    if answer["tokens"] != sum(work.outputs):
        raise RuntimeError(f"{answer['tokens']} tokens came for {sum(work.outputs)}")
    first, gap = answer["first_s"], answer["gap_s"]
    return {
        "out_tok_s": round(answer["tokens"] / answer["seconds"], 1),
        "ttft_p50_ms": round(percentile(first, 0.5) * 1e3, 2),
        "ttft_p95_ms": round(percentile(first, 0.95) * 1e3, 2),
        "itl_p50_ms": round(percentile(gap, 0.5) * 1e3, 2),
        "itl_p99_ms": round(percentile(gap, 0.99) * 1e3, 2),
    }
