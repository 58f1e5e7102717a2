"""The table of spans and the compact form of a request's times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.spans import ABSENT, INDEX, SPANS, STAGES, pack_spans, unpack_spans

INT32 = st.integers(-(2**31), 2**31 - 1)


@given(st.lists(st.tuples(INT32, INT32), max_size=60))
def test_packed_and_read_back(times: list[tuple[int, int]]) -> None:
    starts, durations = [start for start, _ in times], [length for _, length in times]
    data = pack_spans(starts, durations)
    assert unpack_spans(data) == times
    assert len(data) == 8 * len(times)


def test_times_beyond_the_form_are_cut_and_raise_nothing() -> None:
    data = pack_spans([0, -(2**40)], [2**31, 2**63])
    assert unpack_spans(data) == [(0, 2**31 - 1), (ABSENT, 2**31 - 1)]


@pytest.mark.parametrize("size", [1, 4, 7, 12])
def test_half_a_table_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="spans"):
        unpack_spans(b"\x00" * size)


def test_absent_is_no_time_that_a_request_can_have() -> None:
    assert ABSENT < -(60 * 1_000_000)


def test_seven_stages_each_before_its_layers() -> None:
    assert [stage for stage, _, _ in STAGES] == sorted(stage for stage, _, _ in STAGES)
    assert len(STAGES) == 7
    for span in SPANS:
        assert INDEX[span.name] == span.index
        assert INDEX[span.stage] <= span.index


def test_at_least_fourteen_layers() -> None:
    assert len([span for span in SPANS if span.layer]) >= 14
    assert len({span.name for span in SPANS}) == len(SPANS)
