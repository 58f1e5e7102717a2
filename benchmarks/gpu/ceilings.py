"""What the GPU can do at most, by torch's own kernels on random data."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch

READ_BYTES = 8 * 2**30
SIDE = 8192
WARM = 3
REPEATS = 10


def ceilings() -> dict[str, float]:
    """Bandwidth of reading and of copying (both ways counted), GB/s, and bfloat16 TFLOP/s."""
    found = {**_bandwidths(), "matmul_tflop_s": _matmul_tflop_s()}
    torch.cuda.empty_cache()
    return {name: round(value, 1) for name, value in found.items()}


def _bandwidths() -> dict[str, float]:
    data = torch.empty(READ_BYTES // 4, device="cuda").normal_()
    source, target = data.chunk(2)
    read_s, copy_s = _seconds(data.sum), _seconds(lambda: target.copy_(source))
    return {"read_gb_s": READ_BYTES / read_s / 1e9, "copy_gb_s": READ_BYTES / copy_s / 1e9}


def _matmul_tflop_s() -> float:
    left, right = torch.empty(2, SIDE, SIDE, device="cuda", dtype=torch.bfloat16).normal_()
    product = torch.empty_like(left)
    return 2 * SIDE**3 / _seconds(lambda: torch.mm(left, right, out=product)) / 1e12


def _seconds(run: Callable[[], object]) -> float:
    """Median of several runs by the device's own clock."""
    times: list[float] = []
    for number in range(WARM + REPEATS):
        began = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        ended = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        began.record()
        run()
        ended.record()
        ended.synchronize()
        if number >= WARM:
            times.append(began.elapsed_time(ended) / 1e3)
    return median(times)
