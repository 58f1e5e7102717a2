"""Receipts as sentences and rows, whatever their shape."""

import pytest

from controlplane.kernel.receipt import (
    PassedStep,
    Queued,
    Receipt,
    WeighedNode,
    read_receipt,
)
from frontend.requests.receipt import receipt_rows


def test_a_receipt_is_told_as_a_sentence_and_rows() -> None:
    receipt = receipt_rows(
        Receipt(
            rule="direct",
            why="n1 was idle.",
            node="n1",
            index="exact",
            predicted_cached_tokens=1024,
            steps=(PassedStep(1, "m", "default", "served"),),
            queue=Queued(wait_ms=3, position=0, estimate_ms=None),
            candidates=(
                WeighedNode(node="n1", cached_tokens=0, cost_ms=1.5),
                WeighedNode(node="n2", cached_tokens=0, cost_ms=2.0),
            ),
        )
    )
    assert receipt is not None
    assert receipt.why == "n1 was idle."
    assert receipt.facts == [
        ("Rule", "direct"),
        ("Node", "n1"),
        ("Prefix index", "exact"),
        ("Cached tokens at the best node", "0"),
        ("Predicted cached tokens", "1,024"),
        ("Queue wait, ms", "3"),
        ("Queue position", "0"),
    ]
    steps, candidates = receipt.tables
    assert (steps.head, steps.rows) == (
        ["Step", "Model", "Pool", "Reason"],
        [["1", "m", "default", "served"]],
    )
    assert candidates.head == ["Node", "Cached tokens", "Total cost, ms"]
    assert candidates.rows == [["n1 (chosen)", "0", "1.500"], ["n2", "0", "2.000"]]


@pytest.mark.parametrize(
    "data", [b"", b"[", b"[]", b'"x"', b"\xff", b"{}", b'{"line":{"rtt_us":7,"of":"client"}}']
)
def test_a_receipt_that_tells_nothing_or_cannot_be_read_is_none(data: bytes) -> None:
    assert receipt_rows(read_receipt(data)) is None
