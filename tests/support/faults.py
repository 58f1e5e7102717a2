"""What tests of faults share: requests by hand, jobs under way, the one charge of a request."""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from controlplane.kernel.price import TokenCounts, charge_nano
from tests.support.fleet import MODEL
from tests.support.gateway import GatewayUnderTest
from tests.support.ports import KEY, PRICE
from tests.support.serving import CHAT_PATH

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "abcd"}], "max_tokens": 100}
STREAM = {**BODY, "stream": True}


def raw_post(port: int, body: dict[str, object], *, receive_bytes: int = 2048) -> socket.socket:
    """A client that has sent its request and reads nothing."""
    data = msgspec.json.encode(body)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.connect(("127.0.0.1", port))
    head = (
        f"POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    client.sendall(head.encode() + data)
    return client


def only_settlement(under_test: GatewayUnderTest) -> TokenCounts:
    """The counts of the one charge, whose amount must be theirs."""
    (settlement,) = under_test.ledger.settled.values()
    assert settlement.amount_nano == charge_nano(PRICE, settlement.counts)
    return settlement.counts


def open_jobs(under_test: GatewayUnderTest) -> list[Any]:
    """Jobs on all nodes."""
    return [
        entry for link in under_test.fleet.nodes().values() for entry in link.jobs._open.values()
    ]
