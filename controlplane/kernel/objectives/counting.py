"""Objectives: which finished requests count, and which of them are good, decided where seen.

`docs/slos.md` has the same rules in words. What an alert makes of the counts is in `burn.py`.
"""

from array import array
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from controlplane.kernel.spans import INDEX, STAGES
from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM

# The installation's objectives are of this organization, and count every tenant's requests.
INSTALLATION = "0" * 32
ALL_BUCKETS = -1
MILLION = 1_000_000
ANSWER_TOKENS_MIN = 16
SERVER_FAILED_FROM = 500
TOO_MANY = 429
# Of a customer's own limits; any other 429 is our capacity.
OWN_LIMITS = frozenset({"rate_limit_exceeded", "insufficient_quota"})
SHED_CODE = "shed_for_objective"
NOT_CAPTURED_CODE = "ledger_unavailable"

AVAILABILITY, TTFT, INTER_TOKEN, TOTAL = "availability", "ttft", "inter_token", "total"
OVERHEAD, CACHE_HIT, BILLING = "overhead", "cache_hit", "billing_timeliness"
STAGE = "stage:"
INDICATORS = (
    AVAILABILITY,
    TTFT,
    INTER_TOKEN,
    TOTAL,
    OVERHEAD,
    CACHE_HIT,
    BILLING,
    *(f"{STAGE}{name}" for name, _, _ in STAGES),
)
# Of several indicators: a request is good if it is so by each, or by any, that it counts for.
ALL_OF, ANY_OF = "all_of", "any_of"
COMPOSITES = (ALL_OF, ANY_OF)
_INFER, _BILL = INDEX["s5_infer"], INDEX["s7_bill"]


class IndicatorPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One indicator of a composite objective; the threshold is in the indicator's own unit."""

    indicator: str
    threshold: int = 0


class WatchedObjective(msgspec.Struct, frozen=True, kw_only=True):
    """What gateways know of an objective. A scope that is empty, or -1, takes all.

    `threshold` is in microseconds, of the cache hit rate in millionths; `version` counts the
    thresholds and scopes that it has had. A composite one has `parts` and no threshold. Ids are 32
    hex characters.
    """

    id: str
    version: int
    organization: str
    indicator: str
    threshold: int
    route: str = ""
    model: str = ""
    project: str = ""
    pool: str = ""
    region: str = ""
    prompt_bucket: int = ALL_BUCKETS
    parts: tuple[IndicatorPart, ...] = ()


class Finished(Protocol):
    """What is looked at of a finished request: fields of `gateway.ports.RequestRecord`."""

    @property
    def organization(self) -> str: ...
    @property
    def project(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def route(self) -> str: ...
    @property
    def pool(self) -> str: ...
    @property
    def region(self) -> str: ...
    @property
    def status(self) -> int: ...
    @property
    def error_code(self) -> str: ...
    @property
    def stream(self) -> bool: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def total_us(self) -> int: ...
    @property
    def ttft_us(self) -> int: ...
    @property
    def inter_token_us(self) -> list[int]: ...
    @property
    def spans(self) -> bytes: ...


def judge(objective: WatchedObjective, request: Finished, bucket: int) -> bool | None:
    """Whether the request was good; None where it does not count. `bucket` is its prompt's."""
    if not (
        objective.organization in (INSTALLATION, request.organization)
        and objective.model in ("", request.model)
        and objective.route in ("", request.route)
        and objective.project in ("", request.project)
        and objective.pool in ("", request.pool)
        and objective.region in ("", request.region)
        and objective.prompt_bucket in (ALL_BUCKETS, bucket)
    ):
        return None
    if not objective.parts:
        return _judged(objective.indicator, objective.threshold, request)
    told = [_judged(part.indicator, part.threshold, request) for part in objective.parts]
    counting = [good for good in told if good is not None]
    if not counting:
        return None
    return all(counting) if objective.indicator == ALL_OF else any(counting)


def _judged(indicator: str, threshold: int, request: Finished) -> bool | None:
    if indicator.startswith(STAGE):
        return _within(request, INDEX[indicator.removeprefix(STAGE)], threshold)
    return _JUDGES[indicator](request, threshold)


def _served(request: Finished) -> bool | None:
    """Whether we did our part; None where what failed was the client's, or was shed on purpose."""
    if request.status == CLIENT_LEFT:
        return True if request.ttft_us >= 0 else None
    if request.error_code == SHED_CODE:
        return None
    if request.status >= SERVER_FAILED_FROM:
        return False
    if request.status == TOO_MANY and request.error_code not in OWN_LIMITS:
        return False
    return None if request.status >= FAILED_FROM else True


def _available(request: Finished, _: int) -> bool | None:
    return _served(request)


def _first_token(request: Finished, threshold: int) -> bool | None:
    served = _served(request)
    if not request.stream or served is None:
        return None
    if not served:
        return False
    return request.ttft_us <= threshold if request.ttft_us >= 0 else None


def _between_tokens(request: Finished, threshold: int) -> bool | None:
    if request.output_tokens < ANSWER_TOKENS_MIN or not request.inter_token_us:
        return None
    if _served(request) is None:
        return None
    # The mean over the answer, since tokens may come several at a time.
    return sum(request.inter_token_us) <= threshold * (request.output_tokens - 1)


def _whole(request: Finished, threshold: int) -> bool | None:
    served = _served(request)
    return served and request.total_us <= threshold


def _overhead(request: Finished, threshold: int) -> bool | None:
    inferred_us = _duration(request, _INFER)
    return None if inferred_us is None else request.total_us - inferred_us <= threshold


def _cached(request: Finished, threshold: int) -> bool | None:
    # An embedding has no output and leaves nothing to reuse.
    if not request.prompt_tokens or not request.output_tokens or not _served(request):
        return None
    return request.cached_tokens * MILLION >= threshold * request.prompt_tokens


def _captured(request: Finished, threshold: int) -> bool | None:
    if request.error_code == NOT_CAPTURED_CODE and _duration(request, _BILL) is not None:
        return False
    return _within(request, _BILL, threshold)


_JUDGES: Mapping[str, Callable[[Finished, int], bool | None]] = {
    AVAILABILITY: _available,
    TTFT: _first_token,
    INTER_TOKEN: _between_tokens,
    TOTAL: _whole,
    OVERHEAD: _overhead,
    CACHE_HIT: _cached,
    BILLING: _captured,
}


def _within(request: Finished, span: int, threshold: int) -> bool | None:
    took_us = _duration(request, span)
    return None if took_us is None else took_us <= threshold


def _duration(request: Finished, span: int) -> int | None:
    """Microseconds that a span took; None where it did not run."""
    times = array("i")
    times.frombytes(request.spans)
    return times[len(times) // 2 + span] if times[span] >= 0 else None
