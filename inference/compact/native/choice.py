"""Whether the native step can be used, and in which build of those for this CPU."""

import ctypes
import logging
import platform
import sys
from functools import cache

from inference.compact.config.shape import ModelShape
from inference.compact.native.build import (
    MACHINES,
    InstructionSet,
    NativeUnavailable,
    instruction_sets,
    native_library,
)
from inference.compact.native.trial import agrees

log = logging.getLogger("inference.compact")

BLOCK_SIZE = 32
# As step.c and attention.h have them.
VECTOR = 16
HEAD_DIM_MAX = 256
SHARING_MAX = 64


@cache
def chosen() -> tuple[InstructionSet, ctypes.CDLL]:
    """The best instruction set whose build can be had and computes what torch does, with a warning
    of better ones; raises `NativeUnavailable`.
    """
    reasons: dict[str, str] = {}
    for isa in instruction_sets():
        try:
            library = native_library(isa)
            if agrees(library):
                for name, reason in reasons.items():
                    log.warning("native code for %s is not used: %s", name, reason)
                return isa, library
            reasons[isa.name] = "it computes something else than torch"
        except NativeUnavailable as error:
            reasons[isa.name] = str(error)
    raise NativeUnavailable("; ".join(dict.fromkeys(reasons.values())))


def reason_against(shape: ModelShape, block_size: int) -> str | None:
    """Why the native step cannot be used, or None; builds the library to find out."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        return f"it is written for Linux on {' or '.join(MACHINES)}"
    reason = _reason_of_shape(shape, block_size)
    if reason is not None:
        return reason
    try:
        chosen()
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
