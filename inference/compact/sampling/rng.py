"""Random numbers by counter: each depends on its stream and its place in it, on nothing drawn
before. So a draw is the same in any batch, in any order and after a preemption. No torch.

The generator is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), which passes BigCrush and whose
n-th number can be computed at once, for all rows of a batch together.
"""

import numpy as np
from numpy.typing import NDArray

# Draws that one token may take; a power of two, so that places of a stream never overlap.
TRIES_MAX = 64
UNIFORM_BITS = 53
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_SHIFTS = tuple(np.uint64(bits) for bits in (30, 27, 31, 64 - UNIFORM_BITS))


def uniforms(
    streams: NDArray[np.uint64], positions: NDArray[np.uint64], attempt: int = 0
) -> NDArray[np.float64]:
    """Numbers in (0, 1), one for each stream at its position; `attempt` is below TRIES_MAX."""
    z = streams + (positions * np.uint64(TRIES_MAX) + np.uint64(attempt + 1)) * _GOLDEN
    z = (z ^ (z >> _SHIFTS[0])) * _FIRST
    z = (z ^ (z >> _SHIFTS[1])) * _SECOND
    z ^= z >> _SHIFTS[2]
    found: NDArray[np.float64] = ((z >> _SHIFTS[3]) + 0.5) * 2.0**-UNIFORM_BITS
    return found
