"""Can this machine run the native step for this model? Imports no torch."""

import platform
import sys

from inference.compact.config.shape import ModelShape
from inference.compact.native.build import NativeUnavailable, cpu_flags, native_library

NEEDED_FLAGS = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16")
BLOCK_SIZE = 32
# As step.c and attention.h have them.
VECTOR = 16
HEAD_DIM_MAX = 256
SHARING_MAX = 64


def reason_against(shape: ModelShape, block_size: int) -> str | None:
    """Why the native step cannot be used, or None; builds the library to find out."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "it is written for Linux on x86-64"
    missing = [flag for flag in NEEDED_FLAGS if flag not in cpu_flags()]
    if missing:
        return f"the CPU has no {', '.join(missing)}"
    reason = _reason_of_shape(shape, block_size)
    if reason is not None:
        return reason
    try:
        native_library()
    except NativeUnavailable as error:
        return str(error)
    return None


def _reason_of_shape(shape: ModelShape, block_size: int) -> str | None:
    if block_size != BLOCK_SIZE:
        return f"block_size is {block_size}, not {BLOCK_SIZE}"
    if shape.experts is not None:
        return "the model has experts"
    if shape.heads // shape.kv_heads > SHARING_MAX:
        return f"more than {SHARING_MAX} query heads share a key head"
    if shape.head_dim > HEAD_DIM_MAX:
        return f"head_dim is above {HEAD_DIM_MAX}"
    for field in ("hidden_size", "intermediate_size", "head_dim"):
        # The rows of x are added to in whole panels of two vectors.
        step = 2 * VECTOR if field == "hidden_size" else VECTOR
        if getattr(shape, field) % step:
            return f"{field} is not a multiple of {step}"
    return None
