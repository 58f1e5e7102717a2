"""How many threads torch's operators run on in a step: one, or all, by what took less lately; and
the memory that they keep between steps.

A thread that sleeps between operators is woken for each of them, which a small step does not win
back; on a machine that has other work, a large one may not either. Steps of about as many rows are
held against each other.
"""

import ctypes
import time
from collections.abc import Callable
from typing import TypeVar

import torch

# What a mean keeps when a step is added.
KEPT = 0.8
# Of steps of a size, every so manieth runs on the number of threads that took more.
TRY_EVERY = 64
# The first steps are slow by what is made once: of so many for each number only the last counts.
FIRST = 2
Result = TypeVar("Result")
# Options of glibc: above so many bytes it gives freed memory back to the system. By default a
# prompt of 833 tokens takes 33 MB anew, page by page, which is a fifth of its CPU time.
M_TRIM_THRESHOLD, TRIM_BYTES = -1, 256 << 20
M_MMAP_THRESHOLD, MMAP_BYTES = -3, 32 << 20


def keep_memory() -> None:
    """Let this process keep what a step has freed for the next one, where its libc can."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)
        mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)


class _Size:
    """Steps of about as many rows; mean seconds a row on one thread, and on all."""

    def __init__(self) -> None:
        self.steps = 0
        self.means = [0.0, 0.0]

    def choose(self) -> int:
        """0 for one thread, 1 for all."""
        if self.steps < 2 * FIRST:
            return self.steps % 2
        return int((self.means[1] < self.means[0]) is not (self.steps % TRY_EVERY == 0))

    def note(self, which: int, mean: float) -> None:
        kept = KEPT if self.steps >= 2 * FIRST else 0.0
        self.means[which] = kept * self.means[which] + (1 - kept) * mean
        self.steps += 1


class Threads:
    """`whole` is how many there are; of the thread that computes."""

    def __init__(self, whole: int, clock_s: Callable[[], float] = time.perf_counter) -> None:
        self.whole = whole
        self._clock_s = clock_s
        self._sizes: dict[int, _Size] = {}

    def run(self, step: Callable[[], Result], rows: int) -> Result:
        """A step of so many rows, on the threads that suit it."""
        size = self._sizes.setdefault(rows.bit_length(), _Size())
        which = size.choose()
        torch.set_num_threads(self.whole if which else 1)
        began_s = self._clock_s()
        found = step()
        size.note(which, (self._clock_s() - began_s) / rows)
        return found
