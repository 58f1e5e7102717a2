"""A receipt is kept as small JSON, and what cannot be read tells nothing."""

from __future__ import annotations

import pytest

from controlplane.kernel.receipt import (
    Miss,
    NetworkLine,
    NodeAttempt,
    Queued,
    Receipt,
    read_receipt,
    write_receipt,
)


def test_what_is_written_is_read_again() -> None:
    receipt = Receipt(
        node="n1",
        attempts=(NodeAttempt("n2", "full"),),
        queue=Queued(wait_ms=3, position=0, estimate_ms=None),
        miss=Miss(cause="evicted", missed_tokens=64),
        line=NetworkLine(rtt_us=42, of="client"),
    )
    assert read_receipt(write_receipt(receipt)) == receipt


def test_what_did_not_happen_is_left_out() -> None:
    assert write_receipt(Receipt(lack="full")) == b'{"lack":"full"}'
    assert write_receipt(Receipt()) == b""


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"[]", b'{"candidates": 3}', b'{"index":"x"}']
)
def test_what_cannot_be_read_tells_nothing(data: bytes) -> None:
    assert read_receipt(data) == Receipt()
