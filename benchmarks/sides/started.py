"""The engines, each started in a process of its own and ready; and one workload through one."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.machine import MIB
from benchmarks.sides.protocol import Side, Timed
from benchmarks.workloads import Workload

VLLM_PYTHON = Path(".venv-vllm/bin/python")
LLAMA_PYTHON = Path(".venv-llama/bin/python")
VLLM_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": f"0-{(os.cpu_count() or 1) - 1}",
}
COMPACT_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE"}
KV_MIB = 1024


@contextlib.contextmanager
def compact(
    model: Path, *, width: int, kv_mib: int = KV_MIB, name: str = "compact", **options: object
) -> Iterator[Side]:
    """Our engine, with further `CompactOptions`."""
    told = json.dumps({"running_max": width, "kv_bytes": kv_mib * MIB, **options})
    argv = [sys.executable, "-m", "benchmarks.sides.compact", str(model), told]
    with Side(name, argv, COMPACT_ENVIRONMENT) as side:
        yield side


@contextlib.contextmanager
def vllm(model: Path, *, width: int) -> Iterator[Side]:
    """vLLM, compiled."""
    argv = [str(VLLM_PYTHON), "-m", "benchmarks.sides.vllm_best", str(model), str(width)]
    with Side("vllm", argv, VLLM_ENVIRONMENT) as side:
        yield side


@contextlib.contextmanager
def transformers(model: Path) -> Iterator[Side]:
    """transformers' generate."""
    argv = [sys.executable, "-m", "benchmarks.sides.reference_generate", str(model)]
    with Side("transformers", argv, {}) as side:
        yield side


@contextlib.contextmanager
def llama(file: Path) -> Iterator[Side]:
    """llama.cpp, a thread on every core."""
    argv = [str(LLAMA_PYTHON), "-m", "benchmarks.sides.llama", str(file), str(os.cpu_count())]
    with Side("llama_cpp", argv, {}) as side:
        yield side


def run(side: Side, work: Workload) -> Timed:
    """Compute a workload; every token asked for must have come."""
    tokens = sum(work.outputs)
    answer = side.call(
        "run", tokens=tokens, prompts=work.prompts, outputs=work.outputs, width=work.width
    )
    answer.pop("cached", None)
    timed = Timed(**answer)
    if timed.tokens != tokens:
        raise RuntimeError(f"{side.name} gave {timed.tokens} tokens for {tokens}")
    return timed
