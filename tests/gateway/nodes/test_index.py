"""The prefix index against a plain model: for each node, a set of blocks."""

from __future__ import annotations

import tracemalloc
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.nodes.index import BadEvents, PrefixIndex
from inference.contract.blocks import HASH_BYTES
from inference.contract.frames import KvEvents

BLOCKS_MAX = 1000
NODES = ("ada", "bob", "cyd", "dee")
CHAINS = 3


def block(chain: int, depth: int) -> bytes:
    # The first two blocks are common to all chains, as a system prompt is.
    return bytes([0 if depth < 2 else chain, depth]).ljust(HASH_BYTES, b"\0")


def chain_of(chain: int, length: int) -> list[bytes]:
    return [block(chain, depth) for depth in range(length)]


def stored(seq: int, blocks: list[bytes], *, snapshot: bool = False) -> KvEvents:
    return KvEvents(seq=seq, stored=b"".join(blocks), removed=b"", snapshot=snapshot)


def joined(*nodes: str) -> PrefixIndex:
    index = PrefixIndex()
    for node in nodes:
        index.join(node, BLOCKS_MAX)
        assert index.apply(node, stored(0, [], snapshot=True))
    return index


def test_of_a_cache_that_cannot_be_followed_nothing_is_known() -> None:
    index = joined("ada", "bob")
    for node in ("ada", "bob"):
        index.apply(node, stored(1, chain_of(0, 4)))
    lost = msgspec.structs.replace(stored(1, [], snapshot=True), unknown=True)
    assert index.apply("ada", lost), "no snapshot is asked for, since none can be made"
    assert set(index.unknown) == {"ada"}
    assert index.cached_blocks(chain_of(0, 4)) == {"bob": 4}
    assert index.apply("ada", stored(2, chain_of(0, 2), snapshot=True))
    assert not index.unknown and index.cached_blocks(chain_of(0, 4))["ada"] == 2


step = st.tuples(
    st.sampled_from(NODES), st.integers(0, CHAINS - 1), st.integers(0, 40), st.sampled_from("ASDJL")
)


@given(st.lists(step, max_size=60), st.integers(0, CHAINS - 1), st.integers(0, 45))
def test_matches_a_plain_model(
    steps: list[tuple[str, int, int, str]], chain: int, length: int
) -> None:
    index = joined(*NODES)
    lengths: dict[str, dict[int, int]] = {node: {} for node in NODES}
    seqs = dict.fromkeys(NODES, 0)
    for node, which, depth, action in steps:
        before = blocks_of(lengths[node])
        if action in "JDL":
            lengths[node] = {}
        else:
            # A node's cache stays prefix-closed: chains grow or shrink at their ends.
            lengths[node][which] = depth
        after = blocks_of(lengths[node])
        if action in "JL":
            if action == "L":
                index.drop(node)
            index.join(node, BLOCKS_MAX)
            seqs[node] = depth
            assert index.apply(node, stored(depth, [], snapshot=True))
            continue
        seqs[node] += 1
        events = stored(seqs[node], sorted(after), snapshot=True)
        if action == "A":
            added, removed = sorted(after - before), sorted(before - after)
            events = KvEvents(seq=seqs[node], stored=b"".join(added), removed=b"".join(removed))
        assert index.apply(node, events)
    wanted = chain_of(chain, length)
    expected = {}
    for node in NODES:
        have = blocks_of(lengths[node])
        depth = next((i for i, each in enumerate(wanted) if each not in have), len(wanted))
        if depth:
            expected[node] = depth
    assert index.cached_blocks(wanted) == expected
    depths = index.depths(index.match(wanted))
    assert [depths[index.place(node)] for node in NODES] == [
        expected.get(each, 0) for each in NODES
    ]
    assert depths[index.place("nobody")] == 0
    assert len(index) == len(set().union(*(blocks_of(each) for each in lengths.values())))
    for node in NODES:
        # It has counted what each node has: just so many more fit.
        room = BLOCKS_MAX - len(blocks_of(lengths[node]))
        more = [bytes([255, number >> 8, number & 255]) + bytes(13) for number in range(room)]
        assert index.apply(node, stored(seqs[node] + 1, more))
        with pytest.raises(BadEvents, match="more blocks"):
            index.apply(node, stored(seqs[node] + 2, [bytes(15) + b"x"]))


def blocks_of(lengths: dict[int, int]) -> set[bytes]:
    return {each for chain, length in lengths.items() for each in chain_of(chain, length)}


def bytes_each(copies: int) -> float:
    """What the index takes for each node and block, where `copies` nodes have each chain."""
    nodes, chains = 40, 20
    tracemalloc.start()
    index = PrefixIndex()
    for node in range(nodes):
        index.join(str(node), BLOCKS_MAX)
        sizes = [HASH_BYTES * BLOCKS_MAX // chains] * chains
        own = [Random(f"{node // copies} {at}").randbytes(size) for at, size in enumerate(sizes)]
        assert index.apply(str(node), stored(0, own, snapshot=True))
    del own
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(index) == nodes // copies * BLOCKS_MAX
    return taken / (nodes * BLOCKS_MAX)


@pytest.mark.parametrize("copies", [1, 2, 40])
def test_a_block_of_a_node_takes_at_most_64_bytes(copies: int) -> None:
    assert bytes_each(copies) <= 64 / min(copies, 2)


def test_a_thousand_nodes_may_come_and_go_without_leaving_memory() -> None:
    index = joined("ada")
    index.apply("ada", stored(1, chain_of(0, 3)))
    for number in range(1000):
        index.join("bob", BLOCKS_MAX)
        own = Random(number).randbytes(HASH_BYTES * 10)
        assert index.apply("bob", stored(0, [own, *chain_of(0, 2)], snapshot=True))
    tracemalloc.start()
    for number in range(1000):
        index.join("bob", BLOCKS_MAX)
        own = Random(number).randbytes(HASH_BYTES * 10)
        assert index.apply("bob", stored(0, [own, *chain_of(0, 2)], snapshot=True))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 1000 * 10 * HASH_BYTES
    assert index.cached_blocks(chain_of(0, 3)) == {"ada": 3, "bob": 2}
    assert len(index) == 13


def test_a_gap_asks_for_a_snapshot_and_ignores_events_until_it_comes() -> None:
    index = joined("ada")
    assert index.apply("ada", stored(1, chain_of(0, 3)))
    assert not index.apply("ada", stored(3, chain_of(1, 9)))
    assert not index.apply("ada", stored(4, chain_of(1, 9)))
    assert index.apply("ada", stored(4, chain_of(2, 5), snapshot=True))
    assert index.cached_blocks(chain_of(2, 9)) == {"ada": 5}
    assert index.apply("ada", stored(4, chain_of(1, 9))), "older than the snapshot: ignored"
    assert index.cached_blocks(chain_of(1, 9)) == {"ada": 2}


def test_events_before_any_snapshot_ask_for_one() -> None:
    index = PrefixIndex()
    index.join("ada", BLOCKS_MAX)
    assert not index.apply("ada", stored(7, chain_of(0, 3)))


def test_a_dropped_node_leaves_nothing_and_its_bit_is_used_again() -> None:
    index = joined("ada", "bob")
    index.apply("ada", stored(1, chain_of(0, 3)))
    index.drop("ada")
    assert len(index) == 0
    index.join("cyd", BLOCKS_MAX)
    index.apply("cyd", stored(0, chain_of(0, 1), snapshot=True))
    assert index.match(chain_of(0, 2))[0].nodes == 1
    index.drop("nobody")


@pytest.mark.parametrize("field", ["stored", "removed"])
def test_cut_hashes_are_refused_by_field(field: str) -> None:
    index = joined("ada")
    none = KvEvents(seq=1, stored=b"", removed=b"")
    events = msgspec.structs.replace(none, **{field: b"short"})
    with pytest.raises(BadEvents, match=f"kv.{field}"):
        index.apply("ada", events)


def test_more_blocks_than_the_node_has_are_refused() -> None:
    index = PrefixIndex()
    index.join("ada", 2)
    with pytest.raises(BadEvents, match="more blocks"):
        index.apply("ada", stored(0, chain_of(0, 3), snapshot=True))
    assert index.cached_blocks(chain_of(0, 3)) == {}
