"""W3C Trace Context: what is read, what is refused, and who decides whether spans are recorded."""

from __future__ import annotations

import os

import pytest

from controlplane.kernel.ids import new_request_id
from controlplane.kernel.tracing import (
    Trace,
    begins_sampled,
    child_span,
    read_parent,
    read_state,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("03", True)])
def test_the_header_is_read(flags: str, sampled: bool) -> None:
    caller = read_parent(f"00-{TRACE}-{SPAN}-{flags}")
    assert caller is not None
    assert (caller.trace.hex(), caller.span.hex(), caller.sampled) == (TRACE, SPAN, sampled)


def test_a_later_version_may_say_more() -> None:
    assert read_parent(f"01-{TRACE}-{SPAN}-01-more") is not None


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0g",
    ],
)
def test_what_is_none_counts_as_none(header: str) -> None:
    assert read_parent(header) is None


def test_state_is_passed_on_within_its_bounds() -> None:
    assert read_state(" a=1,b=2 ") == "a=1,b=2"
    assert read_state("shop@eu=x y,, 1a@b=!") == "shop@eu=x y,, 1a@b=!"
    assert read_state(",".join(f"k{each}=1" for each in range(32))) != ""


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        ",",
        "a" * 513,
        "a=" + "x" * 511,
        "a=\r\nb",
        "a",
        "a=",
        "A=1",
        "=1",
        "a=1,=b",
        "a=1=2",
        "a=ä",
        "a=1,b",
        "a=1,a=2",
        ",".join(f"k{each}=1" for each in range(33)),
    ],
)
def test_a_state_that_cannot_be_read_is_dropped_whole(header: str | None) -> None:
    assert read_state(header) == ""


def test_the_share_of_traces_that_begin_sampled_is_the_one_asked_for() -> None:
    ids = [new_request_id() for _ in range(4_000)]
    assert sum(begins_sampled(each, 0.0) for each in ids) == 0
    assert sum(begins_sampled(each, 1.0) for each in ids) == len(ids)
    # Six standard deviations: request ids begin with the time, and only their end is random.
    assert 1_000 - 165 < sum(begins_sampled(each, 0.25) for each in ids) < 1_000 + 165


def test_spans_of_a_request_have_ids_of_their_own() -> None:
    span = os.urandom(8)
    ids = {child_span(span, place) for place in range(40)} | {span}
    assert len(ids) == 41
    assert child_span(span, 3) == child_span(span, 3)
    trace = Trace(bytes.fromhex(TRACE), span, b"", sampled=True)
    caller = read_parent(trace.header(child_span(span, 3)))
    assert caller is not None
    assert (caller.trace, caller.span, caller.sampled) == (trace.trace, child_span(span, 3), True)
