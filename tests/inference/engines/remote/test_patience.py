"""How long a server may be silent: learned between a floor and a ceiling, and it can grow again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engines.remote.patience import FACTOR, KNOWN_MIN, SAMPLES, Patience, Silence


def test_the_ceiling_holds_until_enough_is_known_and_then_what_was_measured() -> None:
    patience = Patience(5.0, 60.0)
    for _ in range(KNOWN_MIN - 1):
        patience.took(3.0)
    assert patience.seconds() == 60.0
    patience.took(3.0)
    assert patience.seconds() == FACTOR * 3.0
    # A long prompt has time to be read, within the ceiling.
    assert patience.seconds(20_000) == FACTOR * 3.0 + 10.0
    assert patience.seconds(10**9) == 60.0


def test_a_bound_that_is_run_into_grows() -> None:
    patience = Patience(1.0, 60.0)
    for _ in range(SAMPLES):
        patience.took(0.1)
    before = patience.seconds()
    for _ in range(KNOWN_MIN):
        patience.took(before)
    assert before == 1.0 and patience.seconds() == FACTOR


@given(st.lists(st.floats(0.0, 1_000.0), max_size=300), st.floats(0.1, 50.0), st.floats(0.1, 50.0))
def test_it_never_leaves_floor_and_ceiling(waits: list[float], one: float, other: float) -> None:
    patience = Patience(one, other)
    for seconds in waits:
        patience.took(seconds)
    assert min(one, other) <= patience.seconds() <= other


async def _answer(moments: list[float], error: BaseException | None) -> tuple[Patience, Patience]:
    begins, goes_on = Patience(0.0, 1_000.0), Patience(0.0, 1_000.0)
    for _ in range(KNOWN_MIN):
        clock = iter([0.0, *moments])
        silence = Silence(clock.__next__, begins, goes_on)
        try:
            async with silence:
                for _ in range(len(moments) - isinstance(error, TimeoutError)):
                    silence.broken()
                if error is not None:
                    raise error
        except (TimeoutError, ConnectionError):
            pass
    return begins, goes_on


@pytest.mark.parametrize(
    ("moments", "error", "first_s", "gap_s"),
    [
        ([2.0, 3.0, 6.0, 7.0], None, 2.0, 3.0),
        ([4.0], TimeoutError(), 4.0, None),
        ([2.0, 9.0], TimeoutError(), 2.0, 7.0),
        # What the connection's end cut short says nothing of a silence.
        ([2.0, 3.0], ConnectionError(), 2.0, None),
    ],
)
async def test_an_answer_tells_how_long_it_took_to_begin_and_its_longest_silence(
    moments: list[float], error: BaseException | None, first_s: float, gap_s: float | None
) -> None:
    begins, goes_on = await _answer(moments, error)
    assert begins.seconds() == FACTOR * first_s
    assert goes_on.seconds() == (1_000.0 if gap_s is None else FACTOR * gap_s)
