"""Filters, receipts, volume bars, ids and the Plotly finder: small parts behind the pages."""

import hashlib
import re
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controlplane.core.converters import HexId
from controlplane.telemetry.selectors_requests import Volume
from frontend.filters import (
    Filters,
    choices,
    filters_from,
    place_from,
    request_filter,
    segment_from,
)
from frontend.finders import PLOTLY_PATH, SCRIPT, OneFileStorage, PlotlyFinder
from frontend.ranges import TimeRange
from frontend.receipt import read_receipt
from frontend.snippets import SNIPPETS, first_curl
from frontend.volume import volume_bars

START = datetime(2026, 11, 21, 9, tzinfo=UTC)
HOUR = TimeRange(START, START + timedelta(hours=1), "")


def test_filters_read_the_url_and_write_it_back() -> None:
    key = uuid.uuid4()
    query = {"model": "tiny", "project": key.hex, "key": key.hex, "status": "failed",
             "stream": "no", "min_ms": "250"}  # fmt: skip
    filters, complaint = filters_from({**query, "range": "1h"})
    assert (filters.given, complaint) == (query, "")
    wanted = request_filter(filters, uuid.UUID(int=1), HOUR)
    assert (wanted.key, wanted.stream, wanted.total_us_min) == (key, False, 250_000)
    assert wanted.project == key
    assert segment_from(query)[0].given == {"model": "tiny", "project": key.hex}


@pytest.mark.parametrize(
    "query",
    [{"key": "x"}, {"status": "teapot"}, {"finish": "'"}, {"stream": "maybe"}, {"min_ms": "-1"},
     {"min_ms": "1e9"}, {"min_ms": "86400001"}, {"min_ms": "9" * 5_000}, {"min_ms": "²"},
     {"project": "web"}, {"model": "a\0b"}, {"model": "m" * 101}],
)  # fmt: skip
def test_a_filter_that_cannot_be_read_is_left_out_and_told(query: dict[str, str]) -> None:
    filters, complaint = filters_from({**query, "status": query.get("status", "ok")})
    assert filters == (Filters() if "status" in query else Filters(status="ok"))
    (value,) = query.values()
    assert complaint.startswith("Left out, since it could not be read: ")
    assert f"“{value[:40]}”" in complaint


def test_a_place_in_the_list_that_cannot_be_read_is_told() -> None:
    known = uuid.uuid4()
    assert place_from({"before": known.hex, "after": ""}) == ({"before": known}, "")
    assert place_from({"after": "x"}) == ({}, "Left out, since it could not be read: after “x”.")


def test_a_list_offers_what_the_url_asks_for() -> None:
    assert choices([("a", "A")], "a") == choices([("a", "A")], "") == [("a", "A")]
    assert choices([("a", "A")], "gone") == [("a", "A"), ("gone", "gone")]


def test_a_receipt_is_told_as_a_sentence_and_rows() -> None:
    receipt = read_receipt(
        b'{"rule":"direct","why":"n1 was idle.","index":"exact","predicted_cached_tokens":1024,'
        b'"steps":[{"step":1,"model":"m","reason":"served"}],"queue":{"wait_ms":3,"position":0},'
        b'"candidates":[{"node":"n1","cost_ms":1.5},{"node":"n2","cost_ms":2}]}'
    )
    assert receipt is not None
    assert receipt.why == "n1 was idle."
    assert receipt.facts == [
        ("Rule", "direct"),
        ("Prefix index", "exact"),
        ("Predicted cached tokens", "1,024"),
        ("Queue wait, ms", "3"),
        ("Queue position", "0"),
    ]
    steps, candidates = receipt.tables
    assert (steps.head, steps.rows) == (["Step", "Model", "Reason"], [["1", "m", "served"]])
    assert candidates.head == ["Node", "Cost in all, ms"]
    assert candidates.rows == [["n1", "1.500"], ["n2", "2"]]


def test_a_receipt_of_another_shape_is_read_as_far_as_it_goes() -> None:
    receipt = read_receipt(b'{"why":7,"candidates":3,"steps":[1],"queue":[],"index":[1]}')
    assert receipt is not None
    assert receipt.tables == []


@pytest.mark.parametrize(
    "data", [b"", b"[", b"[]", b'"x"', b"\xff", b"{}", b'{"line":{"rtt_us":7,"of":"client"}}']
)
def test_a_receipt_that_tells_nothing_or_cannot_be_read_is_none(data: bytes) -> None:
    assert read_receipt(data) is None


def test_volume_bars_stack_failures_on_top() -> None:
    rows = [Volume(START, 10, 5, 0), Volume(START + timedelta(minutes=30), 5, 0, 2)]
    made = volume_bars(rows, HOUR)
    assert (made.requests, made.failed, made.gone, made.most) == (15, 5, 2, 10)
    first, second = made.bars
    assert (first.ok_top, first.ok_height, first.failed_top, first.failed_height) == (50, 50, 0, 50)
    assert (second.left, second.ok_height) == (50, 50)


def test_no_requests_make_no_bars() -> None:
    assert volume_bars([], HOUR).bars == []


def test_ids_in_addresses_are_as_clients_see_them() -> None:
    one = uuid.uuid4()
    assert HexId().to_python(str(one)) == HexId().to_python(one.hex) == one
    assert HexId().to_url(one) == one.hex
    # As answers name a request.
    for prefix in ("chatcmpl-", "cmpl-"):
        assert re.fullmatch(HexId.regex, f"{prefix}{one.hex}")
        assert HexId().to_python(f"{prefix}{one.hex}") == one


def test_the_finder_exposes_plotly_alone_as_it_was_published() -> None:
    finder = PlotlyFinder()
    found = finder.find(PLOTLY_PATH)
    assert found is not None
    digest = hashlib.sha256(Path(found).read_bytes()).hexdigest()
    assert f"`{digest}`" in (SCRIPT.parent / "README.md").read_text()
    assert finder.find("vendor/other.js") is None
    assert finder.find("../datasets/iris.csv", find_all=True) == []
    assert [name for name, _ in finder.list(None)] == [PLOTLY_PATH]
    assert finder.check() == []
    with pytest.raises(FileNotFoundError):
        OneFileStorage().path("plotly.min.js")


def test_snippets_stream_and_take_the_key_from_the_environment() -> None:
    for snippet in SNIPPETS:
        assert "SLUICE_API_KEY" in snippet.text
        assert '"stream": true' in snippet.text or "stream=True" in snippet.text or (
            "stream: true" in snippet.text
        )  # fmt: skip
    assert first_curl("http://h", "tiny").startswith("curl -N http://h/v1/chat/completions")
