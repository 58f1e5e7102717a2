"""Predictions: how far a chain was dispatched lately, within their life and their bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.nodes.measured.predicted import (
    BLOCKS_MAX,
    GENERATION_S,
    LIFE_S_MAX,
    Predictions,
)
from inference.contract.blocks import chain_hashes


def chain(*tokens: int) -> list[bytes]:
    return chain_hashes(tokens, 1, b"")


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 1), max_size=6)), max_size=9),
    st.lists(st.integers(0, 1), max_size=6),
)
def test_the_longest_common_beginning_by_node(
    sent: list[tuple[str, list[int]]], wanted: list[int]
) -> None:
    predictions = Predictions()
    expected: dict[str, int] = {}
    for node, tokens in sent:
        predictions.add(node, chain(*tokens), 0.0)
        pairs = zip(tokens, wanted, strict=False)
        shared = next(
            (place for place, (one, other) in enumerate(pairs) if one != other),
            min(len(tokens), len(wanted)),
        )
        expected[node] = max(shared, expected.get(node, 0))
    for node in "ab":
        assert predictions.blocks(node, chain(*wanted), 1.0) == expected.get(node, 0)


def test_a_prediction_ends() -> None:
    predictions = Predictions()
    predictions.add("ada", chain(1, 2), 0.0)
    assert predictions.blocks("ada", chain(1, 2), GENERATION_S + 0.1) == 2
    predictions.add("bob", chain(3), LIFE_S_MAX - 0.1)
    assert predictions.blocks("ada", chain(1, 2), LIFE_S_MAX + 0.2) == 0
    assert predictions.blocks("bob", chain(3), LIFE_S_MAX + 0.2) == 1
    # After a long silence all at once.
    assert predictions.blocks("bob", chain(3), 10 * LIFE_S_MAX) == 0
    assert len(predictions) == 0


def test_their_number_is_bounded() -> None:
    predictions = Predictions()
    long = chain(*range(BLOCKS_MAX // 2))
    for number in range(10):
        predictions.add(f"node-{number}", long, 0.0)
        assert len(predictions) <= 2 * BLOCKS_MAX
    assert predictions.blocks("node-0", long, 0.0) == 0
    assert predictions.blocks("node-9", long, 0.0) == len(long)


def test_prompts_without_a_block_are_not_kept() -> None:
    predictions = Predictions()
    for _ in range(1_000):
        predictions.add("ada", [], 0.0)
    assert len(predictions) == 0
