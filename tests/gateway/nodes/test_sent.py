"""What a node was sent: how far it had a chain lately, within the life and the bounds of that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.nodes.measured.sent import (
    APPROXIMATE_GENERATION_S,
    BLOCKS_MAX,
    GENERATION_S,
    SentBlocks,
)
from inference.contract.blocks import chain_hashes


def chain(*tokens: int) -> list[bytes]:
    return chain_hashes(tokens, 1, b"")


@given(
    st.lists(st.lists(st.integers(0, 1), max_size=6), max_size=9),
    st.lists(st.integers(0, 1), max_size=6),
)
def test_the_longest_common_beginning(sent: list[list[int]], wanted: list[int]) -> None:
    blocks, expected = SentBlocks(), 0
    for tokens in sent:
        blocks.add(chain(*tokens), 0.0)
        pairs = zip(tokens, wanted, strict=False)
        shared = next(
            (place for place, (one, other) in enumerate(pairs) if one != other),
            min(len(tokens), len(wanted)),
        )
        expected = max(shared, expected)
    assert blocks.leading(chain(*wanted), 1.0) == expected


def test_an_entry_ends_and_later_where_nothing_else_is_known() -> None:
    for approximate, life_s in ((False, GENERATION_S), (True, APPROXIMATE_GENERATION_S)):
        blocks = SentBlocks()
        blocks.approximate = approximate
        blocks.add(chain(1, 2), 0.0)
        assert blocks.leading(chain(1, 2), life_s + 0.1) == 2
        blocks.add(chain(3), 2 * life_s - 0.1)
        assert blocks.leading(chain(1, 2), 2 * life_s + 0.2) == 0
        assert blocks.leading(chain(3), 2 * life_s + 0.2) == 1
        # After a long silence all at once.
        assert blocks.leading(chain(3), 20 * life_s) == 0
        assert len(blocks) == 0


def test_their_number_is_bounded() -> None:
    blocks = SentBlocks()
    for number in range(10):
        long = chain(number, *range(BLOCKS_MAX // 2))
        blocks.add(long, 0.0)
        assert len(blocks) <= 2 * BLOCKS_MAX
        assert blocks.leading(long, 0.0) == len(long)
