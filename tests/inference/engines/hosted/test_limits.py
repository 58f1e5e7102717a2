"""What keys may still take, learned from the headers that providers document."""

from datetime import UTC, datetime

import pytest

from inference.engines.hosted.limits import (
    REFUSED_REST_S,
    REST_MAX_S,
    REST_S,
    KeyLimits,
    retry_after_s,
    seconds_until,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def openai(left: int, *, reset: str = "10s") -> dict[str, str]:
    return {
        "x-ratelimit-limit-requests": "100",
        "x-ratelimit-remaining-requests": str(left),
        "x-ratelimit-reset-requests": reset,
    }


@pytest.mark.parametrize(
    ("told", "seconds"),
    [("7", 7), ("6m0s", 360), ("20ms", 0.02), ("1h2m3.5s", 3723.5), ("", None), ("soon", None),
     ("2026-01-01T12:00:30Z", 30), ("Thu, 01 Jan 2026 12:01:00 GMT", 60),
     ("2025-01-01T00:00:00Z", 0), ("9" * 400, None), ("-3", None)],
)  # fmt: skip
def test_every_form_of_a_wait_is_read(told: str, seconds: float | None) -> None:
    assert seconds_until(told, NOW) == seconds


def test_milliseconds_go_before_seconds() -> None:
    assert retry_after_s({"retry-after-ms": "1500", "retry-after": "2"}, NOW) == 1.5
    assert retry_after_s({}, NOW) is None


def test_what_is_left_is_known_until_its_window_ends() -> None:
    key = KeyLimits()
    assert key.room(0.0) == 1
    key.learn(200, openai(10), 0.0, NOW)
    assert (key.room(1.0), key.room(11.0)) == (0.1, 1)


def test_the_tightest_window_of_anthropic_counts() -> None:
    key = KeyLimits()
    for of, left in (("requests", "50"), ("input-tokens", "5"), ("output-tokens", "90")):
        of = f"anthropic-ratelimit-{of}"
        told = {
            f"{of}-limit": "100",
            f"{of}-remaining": left,
            f"{of}-reset": "2026-01-01T12:00:30Z",
        }
        key.learn(200, told, 0.0, NOW)
    assert key.room(1.0) == 0.05


def test_a_key_rests_that_is_used_up_overloaded_or_refused() -> None:
    used_up, overloaded, refused, polite = (KeyLimits() for _ in range(4))
    used_up.learn(200, openai(0), 0.0, NOW)
    overloaded.learn(529, {}, 0.0, NOW)
    refused.learn(401, {}, 0.0, NOW)
    polite.learn(429, {"retry-after": "1000000"}, 0.0, NOW)
    waits = [each.wait_s(1.0) for each in (used_up, overloaded, refused, polite)]
    assert waits == [9.0, REST_S - 1, REFUSED_REST_S - 1, REST_MAX_S - 1]
    assert (refused.refused, overloaded.refused) == (True, False)
    refused.learn(200, {}, 100.0, NOW)
    assert (refused.refused, refused.wait_s(100.0)) == (False, 0)
