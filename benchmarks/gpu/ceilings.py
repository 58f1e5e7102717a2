"""What the GPU can do at most, by torch's own kernels on data too large for its caches."""

from __future__ import annotations

import torch

from inference.compact.load.placement import least_seconds
from inference.compact.run.ceilings import product_rate, read_rate

READ_BYTES = 8 * 2**30
SIDE = 8192


def ceilings() -> dict[str, float]:
    """Bandwidth of reading and of copying (both ways counted), GB/s, and bfloat16 TFLOP/s."""
    found = {
        "read_gb_s": read_rate("cuda", READ_BYTES) / 1e9,
        "copy_gb_s": _copy_rate() / 1e9,
        "matmul_tflop_s": product_rate("cuda", torch.bfloat16, SIDE) / 1e12,
    }
    torch.cuda.empty_cache()
    return {name: round(value, 1) for name, value in found.items()}


def _copy_rate() -> float:
    source, target = torch.ones(READ_BYTES // 4, device="cuda").chunk(2)
    return READ_BYTES / least_seconds(lambda: target.copy_(source), "cuda")
