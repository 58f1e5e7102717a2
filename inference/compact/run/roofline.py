"""How near an engine comes to what its device can do: decoding reads, and prefill multiplies.

Counts what a step needs at least: all weights and the keys and values of its sequences once for a
decode, the products of its tokens for a prefill. No torch.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from inference.compact.config.shape import ModelShape
from inference.compact.schedule.scheduler import Chunk
from inference.contract.roofline import SHARE_MAX, Ceilings, Shares

# Shares are of about the last so many seconds of steps of a kind, idle time left out.
WINDOW_US = 10_000_000.0
US_PER_S = 1_000_000


@dataclass(frozen=True)
class Work:
    """What a model without experts costs: bytes and operations that each step needs at least.

    `stored_bytes` of the weights that every step reads, and `cached_bytes` of a token's keys and
    values in one layer, where not all are items.
    """

    shape: ModelShape
    item_bytes: int = 2
    stored_bytes: int | None = None
    cached_bytes: int | None = None

    @cached_property
    def matrix_parameters(self) -> int:
        """Of a layer's projections, all layers."""
        shape = self.shape
        attention = (2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim
        return shape.layers * shape.hidden_size * (attention + 3 * shape.intermediate_size)

    @cached_property
    def weight_bytes(self) -> int:
        """Of the weights that every step reads."""
        if self.stored_bytes is not None:
            return self.stored_bytes
        head = self.shape.vocab_size * self.shape.hidden_size
        return self.item_bytes * (self.matrix_parameters + head)

    def step_bytes(self, lengths: Sequence[int]) -> int:
        """Read by a decode step over sequences of so many tokens."""
        cached = sum(
            layers * (sum(lengths) if window is None else sum(min(window, n) for n in lengths))
            for window, layers in self._windows.items()
        )
        pair = 2 * self.shape.kv_heads * self.shape.head_dim
        return self.weight_bytes + (self.cached_bytes or self.item_bytes * pair) * cached

    def prefill_flop(self, tokens: int, *, start: int = 0, sampled_rows: int = 0) -> int:
        """Of so many tokens behind `start` others; the head only for sampled rows.

        Attention counts each token and those before it, as far as its layers see them.
        """
        shape = self.shape
        seen = sum(
            layers * _seen(start, tokens, window) for window, layers in self._windows.items()
        )
        attention = 4 * shape.heads * shape.head_dim * seen
        head = 2 * shape.vocab_size * shape.hidden_size * sampled_rows
        return 2 * self.matrix_parameters * tokens + attention + head

    @cached_property
    def _windows(self) -> Counter[int | None]:
        return Counter(self.shape.windows)


def _seen(start: int, count: int, window: int | None) -> int:
    """Sum over tokens `start` to `start + count` of how many each attends to, itself included."""
    if window is None:
        return count * start + count * (count + 1) // 2
    # Those that see everything before them, and then those whose window is full.
    short = min(count, max(0, window - start))
    return short * start + short * (short + 1) // 2 + (count - short) * window


class _Rate:
    """Work over time, where what is older than the window fades."""

    def __init__(self) -> None:
        self._done = 0.0
        self._us = 0.0

    def add(self, done: float, us: int) -> None:
        kept = math.exp(-us / WINDOW_US)
        self._done = self._done * kept + done
        self._us = self._us * kept + us

    def share_of(self, per_s: float) -> float | None:
        """Of a ceiling; None before the first step."""
        if not self._us:
            return None
        return min(self._done * US_PER_S / self._us / per_s, SHARE_MAX)


class Roofline:
    """The shares of one engine: of memory bandwidth in decoding, of compute in prefill.

    A step that does both counts for prefill, whose products take its time.
    """

    def __init__(self, work: Work, ceilings: Ceilings) -> None:
        self._work = work
        self._ceilings = ceilings
        self._reading = _Rate()
        self._multiplying = _Rate()

    def note(self, chunks: Iterable[Chunk], us: int) -> None:
        chunks = list(chunks)
        if not chunks or us <= 0:
            return
        if all(chunk.sampled_rows == chunk.count for chunk in chunks):
            lengths = [chunk.start + chunk.count for chunk in chunks]
            self._reading.add(self._work.step_bytes(lengths), us)
            return
        flop = sum(
            self._work.prefill_flop(chunk.count, start=chunk.start, sampled_rows=chunk.logit_rows)
            for chunk in chunks
        )
        self._multiplying.add(flop, us)

    @property
    def shares(self) -> Shares:
        return Shares(
            decode=self._reading.share_of(self._ceilings.read_bytes_s),
            prefill=self._multiplying.share_of(self._ceilings.flop_s),
        )
