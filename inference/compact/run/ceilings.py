"""What a device can do at most, measured by torch's own kernels: bytes read, products made.

Takes well under a second and, for that long, as much memory as the model's weights or at most
`READ_BYTES_MAX`; on a GPU up to `GPU_READ_BYTES`. On a busy machine the figures come out
too low.
"""

from functools import cache

import torch

from inference.compact.load.placement import least_seconds
from inference.compact.options import MEBIBYTE
from inference.contract.roofline import Ceilings

# More than fits into any cache; a smaller model lies in a cache, and so does what is read for it.
READ_BYTES_MAX = 256 * MEBIBYTE
READ_BYTES_MIN = 8 * MEBIBYTE
# A GPU reads less than this in about the time of a launch.
GPU_READ_BYTES = 1024 * MEBIBYTE
GPU_FREE_DIVISOR = 4
COLUMNS = 1024
SIDES = {"cpu": 1024, "cuda": 4096}


@cache
def measure_ceilings(device: str, weight_bytes: int) -> Ceilings:
    """Of one device, once per process; `weight_bytes` is what a decode step reads of weights."""
    size = min(max(weight_bytes, READ_BYTES_MIN), READ_BYTES_MAX)
    # A CPU may have no bfloat16 products, and then its engine computes in float32.
    dtypes = [torch.bfloat16, torch.float32]
    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        size, dtypes = min(GPU_READ_BYTES, free // GPU_FREE_DIVISOR), [torch.bfloat16]
    with torch.inference_mode():
        read_bytes_s = read_rate(device, size)
        flop_s = max(product_rate(device, dtype, SIDES[device]) for dtype in dtypes)
    if device == "cuda":
        torch.cuda.empty_cache()
    source = f"torch, at its start: {size // MEBIBYTE} MiB read, square products of {SIDES[device]}"
    return Ceilings(read_bytes_s=read_bytes_s, flop_s=flop_s, source=source)


def read_rate(device: str, size: int) -> float:
    """Bytes a second of reading so many, by the faster of a sum and a product with one vector."""
    matrix = torch.ones(size // 4 // COLUMNS, COLUMNS, device=device)
    vector = torch.ones(COLUMNS, device=device)
    least_s = min(
        least_seconds(matrix.sum, device), least_seconds(lambda: torch.mv(matrix, vector), device)
    )
    return matrix.numel() * 4 / least_s


def product_rate(device: str, dtype: torch.dtype, side: int) -> float:
    """Operations a second of a product of two square matrices."""
    left, right = torch.ones(2, side, side, device=device, dtype=dtype)
    product = torch.empty_like(left)
    return 2 * side**3 / least_seconds(lambda: torch.mm(left, right, out=product), device)
