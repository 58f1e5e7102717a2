"""Why prompt tokens were missed, added up over a sample of requests; and what prefill takes."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from controlplane.kernel.receipt import Miss
from controlplane.kernel.spans import INDEX, unpack_spans
from controlplane.telemetry.selectors_sample import Sampled
from frontend.shared.miss import CAUSES

_PREFILL = INDEX["s5_infer.prefill"]


class _OfMiss(msgspec.Struct):
    """All that is read of a receipt here: a sample has thousands of them."""

    miss: Miss | None = None


_DECODER = msgspec.json.Decoder(_OfMiss)


@dataclass
class Cause:
    """One reason: how many of the sample's requests, and how many of their tokens."""

    name: str
    requests: int = 0
    missed: int = 0
    avoidable: int = 0
    nano: int = 0

    @property
    def words(self) -> tuple[str, str]:
        return CAUSES[self.name]


@dataclass(frozen=True)
class Misses:
    """Causes, by cost. `prefill_us` is what one uncached token took; None if unknown."""

    sampled: int
    causes: list[Cause]
    prefill_us: float | None


def count_misses(rows: Iterable[Sampled]) -> Misses:
    """Add a sample up; receipts that cannot be read are left out."""
    causes: dict[str, Cause] = {}
    sampled = took_us = tokens = 0
    for row in rows:
        sampled += 1
        miss = _miss(row.receipt)
        if miss is not None:
            cause = causes.setdefault(miss.cause, Cause(miss.cause))
            cause.requests += 1
            cause.missed += miss.missed_tokens
            cause.avoidable += miss.avoidable_tokens
            cause.nano += miss.cost_nano
        uncached, prefill = row.prompt_tokens - row.cached_tokens, _prefill_us(row.spans)
        if uncached > 0 and prefill > 0:
            took_us += prefill
            tokens += uncached
    return Misses(
        sampled=sampled,
        causes=sorted(causes.values(), key=lambda one: (-one.avoidable, -one.missed, one.name)),
        prefill_us=took_us / tokens if tokens else None,
    )


def _miss(receipt: bytes) -> Miss | None:
    try:
        miss = _DECODER.decode(receipt).miss if receipt else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return miss if miss is not None and miss.cause in CAUSES else None


def _prefill_us(spans: bytes) -> int:
    """Zero where it did not run, or an older row has fewer spans."""
    times = unpack_spans(spans)
    start, length = times[_PREFILL] if len(times) > _PREFILL else (-1, 0)
    return length if start >= 0 else 0
