"""What a tenant's receipt says of nodes: numbers, its own cache, and no one's load."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controlplane.telemetry.tenant_view import tenant_receipt

LOADS = {"queued_tokens": 900, "active": 3, "cost_ms": 71.5, "wait_ms": 40.0}


def _weighed(*nodes: tuple[str, int]) -> list[dict[str, Any]]:
    return [
        {"node": name, "cached_tokens": cached, "prefill_ms": 1.5, **LOADS}
        for name, cached in nodes
    ]


def _told(**receipt: Any) -> dict[str, Any]:
    return msgspec.json.decode(tenant_receipt(msgspec.json.encode(receipt)), type=dict[str, Any])


def test_nodes_become_numbers_everywhere_and_all_else_stays_in_its_order() -> None:
    told = _told(
        rule="chat@7",
        node="b",
        why="b had 8 of 20 prompt tokens cached",
        index="exact",
        candidates=_weighed(("b", 8), ("a", 0)),
        attempts=[{"node": "c", "reason": "c hung up"}, {"node": "a", "reason": "full"}],
        queue={"wait_ms": 4},
    )
    assert list(told) == ["rule", "node", "why", "index", "candidates", "attempts", "queue"]
    assert (told["rule"], told["node"], told["queue"]) == ("chat@7", "Node 1", {"wait_ms": 4})
    assert told["candidates"] == [
        {"node": "Node 1", "cached_tokens": 8, "prefill_ms": 1.5},
        {"node": "Node 2", "cached_tokens": 0, "prefill_ms": 1.5},
    ]
    assert told["attempts"] == [{"node": "Node 3"}, {"node": "Node 2"}]


@pytest.mark.parametrize(
    ("index", "nodes", "why"),
    [
        ("exact", [("b", 8)], "One node had room."),
        ("exact", [("b", 8), ("a", 8)], "Node 1 had 8 prompt tokens cached and the lowest"),
        ("exact", [("a", 0), ("b", 0)], "No node had this prompt cached, and Node 2 had the"),
        ("exact", [("b", 8), ("a", 16)], "Node 1 had 8 prompt tokens cached; Node 2 had 16, but"),
        ("stale", [("b", 8), ("a", 0)], "(as far as is known: the events of some nodes are late)"),
        ("ring", [("b", 0), ("a", 0)], "the beginning of the prompt chose Node 1."),
    ],
)
def test_the_sentence_is_made_of_what_a_tenant_may_know(
    index: str, nodes: list[tuple[str, int]], why: str
) -> None:
    assert why in _told(node="b", why="b: 71 ms", index=index, candidates=_weighed(*nodes))["why"]


@pytest.mark.parametrize("receipt", [b"", b"{", b"\xff", b"[]", b'{"candidates": 3}'])
def test_what_cannot_be_read_tells_nothing(receipt: bytes) -> None:
    assert tenant_receipt(receipt) == b""


def test_a_request_that_no_node_finished_numbers_those_that_tried() -> None:
    assert _told(attempts=[{"node": "c", "reason": "full"}]) == {"attempts": [{"node": "Node 1"}]}


def test_a_figure_that_is_not_there_is_not_made_up() -> None:
    told = _told(node="b", candidates=[{"node": "b", "cached_tokens": 8}])
    assert told["candidates"] == [{"node": "Node 1", "cached_tokens": 8}]


def test_a_receipt_without_nodes_stays_as_it_is() -> None:
    assert _told(limit={"kind": "requests"}) == {"limit": {"kind": "requests"}}
