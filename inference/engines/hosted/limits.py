"""What a provider leaves of its limits to one key, as the headers of its answers say it."""

import re
from collections.abc import Mapping
from math import inf

# Header names of OpenAI and Azure, then of Anthropic: what is left of how many, of two things.
LEFT = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-limit-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-limit-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-limit"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-limit"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-limit"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-limit"),
)
# Both count within minutes, so what was left is no news after one.
KNOWN_S = 60.0
REST_S, REST_S_MAX = 5.0, 300.0
# A key that is refused rests until somebody may have mended it.
REFUSED_S = 60.0
OVERLOADED = frozenset({429, 529, 503})
UNAUTHORIZED = frozenset({401, 403})
NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")


class KeyLimits:
    """Of one key at one address; times on the caller's monotonic clock, in seconds."""

    def __init__(self) -> None:
        self.refused = False
        self._rests_until_s = -inf
        self._left = 1.0
        self._known_s = -inf

    def learn(self, status: int, headers: Mapping[str, str], now_s: float) -> None:
        """An answer has come."""
        shares = [_share(headers, *names) for names in LEFT]
        if known := [share for share in shares if share is not None]:
            self._left, self._known_s = min(known), now_s
        self.refused = status in UNAUTHORIZED
        if self.refused:
            self._rests_until_s = now_s + REFUSED_S
        elif status in OVERLOADED:
            self._rests_until_s = now_s + min(_retry_s(headers), REST_S_MAX)

    def rest_s(self, now_s: float) -> float:
        """How long it takes no request; 0 where it takes one."""
        return max(0.0, self._rests_until_s - now_s)

    def left(self, now_s: float) -> float:
        """The share of its limits that is left, of that with the least; 1 where it is not known."""
        return self._left if now_s - self._known_s < KNOWN_S else 1.0


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and NUMBER.fullmatch(text.strip()) else None


def _share(headers: Mapping[str, str], left: str, limit: str) -> float | None:
    rest, whole = _number(headers.get(left)), _number(headers.get(limit))
    return min(1.0, rest / whole) if rest is not None and whole else None


def _retry_s(headers: Mapping[str, str]) -> float:
    told = _number(headers.get("retry-after"))
    if (told_ms := _number(headers.get("retry-after-ms"))) is not None:
        told = told_ms / 1000
    return REST_S if told is None else told
