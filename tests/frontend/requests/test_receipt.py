"""Receipts as sentences and rows, whatever their shape."""

import pytest

from frontend.requests.receipt import read_receipt


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
    assert candidates.head == ["Node", "Total cost, ms"]
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
