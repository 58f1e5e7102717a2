"""How much each key of a provider may still take, as the provider's answers say."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite

# Without a word of the provider, a key that refused rests this long.
REST_S = 5.0
REST_MAX_S = 3600.0
# A key that the provider does not accept.
REFUSED_REST_S = 60.0
UNAUTHORIZED = frozenset({401, 402, 403})
OVERLOADED = frozenset({429, 503, 529})
PREFIXES = ("x-ratelimit-{}-requests", "x-ratelimit-{}-tokens") + tuple(
    f"anthropic-ratelimit-{of}-{{}}"
    for of in ("requests", "tokens", "input-tokens", "output-tokens")
)
UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PERIOD = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")


class KeyLimits:
    """One key at one connection; `refused` by the provider's last answer to it. Seconds are of a
    monotonic clock, `now` in `learn` of the day's.
    """

    def __init__(self) -> None:
        self.refused = False
        self._windows: dict[str, tuple[float, float]] = {}
        self._resting_until_s = 0.0

    def learn(self, status: int, headers: Mapping[str, str], now_s: float, now: datetime) -> None:
        """Take in any answer; headers' names are in lower case, odd ones are ignored."""
        self.refused = status in UNAUTHORIZED
        if self.refused:
            self._rest(REFUSED_REST_S, now_s)
        elif status in OVERLOADED:
            self._rest(retry_after_s(headers, now), now_s)
        for prefix in PREFIXES:
            limit, left = (
                _number(headers.get(prefix.format(each), "")) for each in ("limit", "remaining")
            )
            reset_s = seconds_until(headers.get(prefix.format("reset"), ""), now)
            if limit and left is not None and reset_s is not None:
                self._windows[prefix] = min(1.0, left / limit), now_s + min(reset_s, REST_MAX_S)

    def _rest(self, seconds: float | None, now_s: float) -> None:
        """It takes nothing for as long as the provider says, `REST_S` where it does not."""
        bounded = min(REST_S if seconds is None else seconds, REST_MAX_S)
        self._resting_until_s = max(self._resting_until_s, now_s + bounded)

    def wait_s(self, now_s: float) -> float:
        """How long it still takes nothing: it rests, or has used up a window; 0 where it may."""
        used_up = [reset_s for left, reset_s in self._windows.values() if not left]
        return max(0.0, max([self._resting_until_s, *used_up]) - now_s)

    def room(self, now_s: float) -> float:
        """The smallest share left of any window that has not ended; 1 where none is known."""
        return min(
            [left for left, reset_s in self._windows.values() if reset_s > now_s], default=1.0
        )


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that a refusal asks to wait; None where it does not say."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    return seconds_until(headers.get("retry-after", ""), now)


def seconds_until(told: str, now: datetime) -> float | None:
    """Seconds from any form of it: `7`, `6m0s`, `20ms`, a date of RFC 3339 or of HTTP."""
    if (plain := _number(told)) is not None:
        return plain
    if PERIOD.fullmatch(told):
        return sum(float(count) * UNITS_S[unit] for count, unit in PART.findall(told))
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            then = read(told)
        except (ValueError, TypeError):
            continue
        then = then if then.tzinfo else then.replace(tzinfo=UTC)
        return max(0.0, (then - now).total_seconds())
    return None


def _number(told: str) -> float | None:
    return float(told) if NUMBER.fullmatch(told) and isfinite(float(told)) else None
