"""Cells: what is guarded, what is quoted, and that numbers come back as they went in."""

from __future__ import annotations

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from controlplane.billing.cells import (
    NUMBER,
    Cell,
    Column,
    decimal_text,
    guarded,
    head_line,
    line_writer,
)

COLUMNS = (
    Column("free", Cell.FREE, ""),
    Column("text", Cell.TEXT, ""),
    Column("number", Cell.NUMBER, ""),
)


def _read(line: str) -> list[str]:
    return (
        next(csv.reader(io.StringIO(head_line(COLUMNS) + line, newline=""), strict=True))
        and (list(csv.reader(io.StringIO(line, newline=""), strict=True))[0])
    )


@given(st.text(), st.integers())
def test_a_raw_line_comes_back_as_it_went_in(text: str, number: int) -> None:
    line = line_writer(COLUMNS, raw=True)([text, text, number])
    assert _read(line) == [text, text, str(number)]


@given(st.sampled_from("=+-@\t\r\n＝＋－＠"), st.text(), st.sampled_from(["", " ", "   "]))
def test_what_a_spreadsheet_would_run_is_text(start: str, rest: str, space: str) -> None:
    text = space + start + rest
    assert guarded(text) == f"'{text}"
    line = line_writer(COLUMNS, raw=False)([text, "x", -5])
    assert _read(line) == [f"'{text}", "x", "-5"]


@given(st.text().filter(lambda text: text.lstrip(" ")[:1] not in "=+-@\t\r\n＝＋－＠"))
def test_other_text_is_left_alone(text: str) -> None:
    assert guarded(text) == text


@given(st.integers(), st.sampled_from([1, 6, 9, 12]))
def test_decimals_are_exact_and_plain(value: int, places: int) -> None:
    text = decimal_text(value, places)
    assert NUMBER.fullmatch(text)
    assert int(text.replace(".", "")) == value


def test_a_null_is_nothing_and_an_empty_text_is_not() -> None:
    write = line_writer(COLUMNS, raw=False)
    assert write([None, None, None]) == ",,\r\n"
    assert write(["", "", 0]) == '"","",0\r\n'
