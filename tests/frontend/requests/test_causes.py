"""Causes are ranked by the time that they explain, and each carries its evidence."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.kernel.histogram import Histogram
from frontend.requests.causes import (
    CAUSES_MAX,
    COUNT_LEAST,
    CauseFacts,
    Usual,
    compare,
    likeliest,
    pace,
)

TOTAL_US = 3_220_000


def _usual(us: float, median_us: float, count: int = 100) -> Usual:
    return Usual(us, median_us, 0.99, count)


def _facts(**said: Any) -> CauseFacts:
    times = {"total": _usual(TOTAL_US, 600_000), **said.pop("usual", {})}
    return CauseFacts(total_us=TOTAL_US, usual=times, **said)


def _histogram(*values: int) -> Histogram:
    made = Histogram()
    for value in values:
        made.record(value)
    return made


def test_slow_decoding_is_told_by_the_token_with_the_nodes_state() -> None:
    found = likeliest(
        _facts(
            usual={"decode": _usual(2_720_000, 289_000)},
            gap=_usual(160_000, 17_000),
            output_tokens=18,
            node="node-1",
            running=6,
            cpu_permille=980,
        )
    )
    (cause,) = found.causes
    assert cause.us == 17 * (160_000 - 17_000)
    assert cause.sentence == (
        "Decode took 160 ms a token, 9.4 × the hour's median of 17.0 ms: "
        "node-1 was at 98 % CPU, with 6 sequences in its batch."
    )


def test_a_long_answer_at_the_usual_pace_is_no_slow_decoding() -> None:
    found = likeliest(
        _facts(
            usual={"decode": _usual(2_720_000, 289_000)},
            gap=_usual(17_100, 17_000),
            output_tokens=160,
        )
    )
    (cause,) = found.causes
    assert cause.sentence.startswith("A long answer: 160 tokens, 17.1 ms each as usual.")


def test_the_most_time_comes_first_and_there_are_three_at_most() -> None:
    slow = {
        "queue": _usual(300_000, 1_000),
        "prefill": _usual(900_000, 90_000),
        "network": _usual(250_000, 1_000),
        "s7_bill.settle": _usual(500_000, 900),
        "s1_admission.hold": _usual(900, 300),
    }
    found = likeliest(_facts(usual=slow, uncached_tokens=3_000, miss="The prompt changed early."))
    assert [one.name for one in found.causes] == [
        "s5_infer.prefill",
        "s7_bill.settle",
        "s5_infer.queue",
    ]
    assert len(found.causes) == CAUSES_MAX
    assert found.causes[0].sentence == (
        "Prefill took 900 ms, 10 × the hour's median of 90.0 ms: "
        "3,000 prompt tokens were not cached; The prompt changed early."
    )
    assert "PostgreSQL, which keeps charges, answered late" in found.causes[1].sentence


def test_who_shared_the_node_stands_where_its_state_is_not_told() -> None:
    found = likeliest(_facts(usual={"queue": _usual(400_000, 1_000)}, sharers=5))
    assert found.causes[0].sentence.endswith(": 5 other requests were on its node.")


def test_a_wait_names_those_before_it_and_the_nodes_that_gave_up() -> None:
    usual = {"s4_route.saturation": _usual(800_000, 0)}
    found = likeliest(_facts(usual=usual, position=4, failed_nodes=1))
    assert found.causes[0].sentence == (
        "Waiting for a node with room took 800 ms, against the hour's median of 0 ms: "
        "4 requests waited before it; 1 node did not finish it."
    )


@pytest.mark.parametrize(
    "usual",
    [
        {},
        {"prefill": _usual(170_000, 90_000)},
        # Many times its median, and next to nothing of the total.
        {"s1_admission.hold": _usual(90_000, 300)},
        # Too few to have a median.
        {"queue": _usual(900_000, 1_000, COUNT_LEAST - 1)},
    ],
)
def test_nothing_unusual_is_an_answer(usual: dict[str, Usual]) -> None:
    found = likeliest(_facts(usual=usual))
    assert found.causes == [] and found.note.startswith("Nothing unusual: no layer took 2 ×")


def test_an_hour_of_few_requests_is_none_to_compare_with() -> None:
    few = {"total": _usual(TOTAL_US, 10, COUNT_LEAST - 1), "queue": _usual(900_000, 1_000)}
    assert likeliest(_facts(usual=few)).note.endswith(f"compare with: {COUNT_LEAST - 1}.")
    assert likeliest(CauseFacts(total_us=1, usual={})).note.endswith(": 0.")


def test_times_are_ranked_among_the_hours_and_what_did_not_run_is_not() -> None:
    series = {"ttft": _histogram(*range(1_000, 101_000, 1_000)), "empty": Histogram()}
    found = compare(series, {"ttft": 95_500, "empty": 5, "queue": 7})
    assert set(found) == {"ttft"}
    assert found["ttft"].percentile in {"p93", "p94", "p95"} and found["ttft"].count == 100
    assert found["ttft"].median_us == pytest.approx(50_000, rel=0.02)
    assert compare(series, {"ttft": 100_000})["ttft"].percentile == "longest"
    assert compare(series, {"ttft": 0})["ttft"].percentile == "p0"
    assert compare(series, {"ttft": None}) == {}


def test_the_pace_is_compared_with_each_requests_own() -> None:
    # 50 tokens a second is 20 ms each.
    series = {"tokens_per_s": _histogram(*[50_000] * 30)}
    found = pace(series, 1_600_000, 11)
    assert found is not None and (found.us, found.below) == (160_000, 1.0)
    assert found.median_us == pytest.approx(20_000, rel=0.02)
    assert pace(series, 1_600_000, 1) is None and pace({}, 1_600_000, 11) is None
    assert pace(series, None, 11) is None
