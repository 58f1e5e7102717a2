"""What a tenant's receipt says of nodes: numbers, its own cache, and no one's load."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.kernel.limits import ReachedLimit
from controlplane.kernel.receipt import IndexState, NodeAttempt, Queued, Receipt, WeighedNode
from controlplane.telemetry.selectors_requests import tenant_receipt

LOADS: dict[str, Any] = {"queued_tokens": 900, "active": 3, "cost_ms": 71.5, "wait_ms": 40.0}


def _weighed(*nodes: tuple[str, int]) -> tuple[WeighedNode, ...]:
    return tuple(
        WeighedNode(node=name, cached_tokens=cached, prefill_ms=1.5, **LOADS)
        for name, cached in nodes
    )


def test_nodes_become_numbers_everywhere_and_all_else_stays() -> None:
    queue = Queued(wait_ms=4, position=0, estimate_ms=None)
    told = tenant_receipt(
        Receipt(
            rule="chat@7",
            node="b",
            why="b had 8 of 20 prompt tokens cached",
            index="exact",
            candidates=_weighed(("b", 8), ("a", 0)),
            attempts=(NodeAttempt("c", "c hung up"), NodeAttempt("a", "full")),
            queue=queue,
        )
    )
    assert (told.rule, told.node, told.queue) == ("chat@7", "Node 1", queue)
    assert told.candidates == (
        WeighedNode(node="Node 1", cached_tokens=8, prefill_ms=1.5),
        WeighedNode(node="Node 2", cached_tokens=0, prefill_ms=1.5),
    )
    assert told.attempts == (NodeAttempt("Node 3"), NodeAttempt("Node 2"))


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
    index: IndexState, nodes: list[tuple[str, int]], why: str
) -> None:
    told = tenant_receipt(
        Receipt(node="b", why="b: 71 ms", index=index, candidates=_weighed(*nodes))
    )
    assert why in told.why


def test_a_request_that_no_node_finished_numbers_those_that_tried() -> None:
    told = tenant_receipt(Receipt(attempts=(NodeAttempt("c", "full"),)))
    assert told == Receipt(attempts=(NodeAttempt("Node 1"),))


def test_a_figure_that_is_not_there_is_not_made_up() -> None:
    told = tenant_receipt(Receipt(node="b", candidates=(WeighedNode(node="b", cached_tokens=8),)))
    assert told.candidates == (WeighedNode(node="Node 1", cached_tokens=8),)


def test_a_receipt_without_nodes_stays_as_it_is() -> None:
    limited = Receipt(limit=ReachedLimit(kind="requests"))
    assert tenant_receipt(limited) == limited
