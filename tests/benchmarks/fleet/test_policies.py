"""Small cases of the policies, each with the answer that its description gives."""

from __future__ import annotations

from random import Random

from benchmarks.fleet.cache import KvChange
from benchmarks.fleet.chains import BLOCK_TOKENS, Request, Segments
from benchmarks.fleet.fleet import Telling
from benchmarks.fleet.node import Chunk, Frame, Gpu
from benchmarks.fleet.policies.dynamo import Dynamo
from benchmarks.fleet.policies.llmd import LlmdScorers
from benchmarks.fleet.policies.plain import BoundedHash, RoundRobin, SessionHash
from benchmarks.fleet.policies.sglang import SglangCacheAware
from benchmarks.fleet.policies.sluice import Sluice, kv_events
from inference.contract.blocks import split_hashes

SEGMENTS = Segments()
PREFIX = SEGMENTS.make(100)


def asked(session: int = 0, own: int = 640) -> Request:
    path = (PREFIX, SEGMENTS.make(own // BLOCK_TOKENS + 1))
    return Request(0.0, session, path, PREFIX.blocks * BLOCK_TOKENS + own, 10)


def frame(
    node: int,
    changes: list[KvChange],
    *,
    waiting: int = 0,
    free: int = 6000,
    done: list[Request] | None = None,
) -> Telling:
    chunks = [Chunk(each, 100, True) for each in done or []]
    return Telling(Frame(node, 0.0, 0.01, chunks, [], changes, 1, waiting, 0, free, 0, None))


def test_round_robin_goes_round() -> None:
    policy = RoundRobin(3, Random(1))
    assert [policy.pick(asked(), 0.0) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_a_session_stays_until_its_node_is_over_the_bound() -> None:
    free, bounded = SessionHash(4, Random(1)), BoundedHash(4, Random(1))
    assert len({free.pick(asked(session=7), 0.0) for _ in range(40)}) == 1
    for _ in range(40):
        bounded.pick(asked(session=7), 0.0)
    assert max(bounded.active) <= 1.25 * 40 / 4 + 2


def test_sglang_follows_its_tree_and_below_the_threshold_the_least_load() -> None:
    policy = SglangCacheAware(2, Random(1), tree_blocks_max=6250)
    first = policy.pick(asked(), 0.0)
    assert first is not None
    assert [policy.pick(asked(), 0.0) for _ in range(5)] == [first] * 5
    # 100 of 400 blocks are below 0.3, so the other node, which has nothing to do, takes it.
    assert policy.pick(asked(own=300 * BLOCK_TOKENS), 0.0) == 1 - first


def test_sglang_gives_up_affinity_when_loads_part_by_64_and_by_half() -> None:
    policy = SglangCacheAware(2, Random(1), tree_blocks_max=6250)
    first = policy.pick(asked(), 0.0)
    assert first is not None
    policy.active[first] = 65
    policy.active[1 - first] = 1
    assert policy.pick(asked(), 0.0) == first
    assert policy.pick(asked(), 0.0) == 1 - first


def test_dynamo_counts_prefill_blocks_and_shared_decode_blocks_once() -> None:
    policy = Dynamo(2, Random(1))
    policy.hear(frame(0, [KvChange(True, PREFIX, 0, 100)]), 0.0)
    first, second = asked(), asked()
    # Node 0: 10 blocks to compute and 110 to hold; node 1: 110 and 110.
    assert policy.pick(first, 0.0) == 0
    # Node 0: (10 + 10) and (110 + 10), the prefix counts once; node 1 still 110 and 110.
    assert policy.pick(second, 0.0) == 0
    policy.hear(frame(0, [], done=[first, second]), 0.0)
    # Node 0: 10 and 130; a prompt of which nothing is known: 0: 20 + 140, 1: 20 + 20.
    lone = Request(0.0, 0, (SEGMENTS.make(21),), 20 * BLOCK_TOKENS, 10)
    assert policy.pick(lone, 0.0) == 1


def test_llmd_weighs_prefix_twice_and_queue_and_cache_once() -> None:
    policy = LlmdScorers(2, Random(1), kv_blocks=6000)
    policy.hear(frame(0, [KvChange(True, PREFIX, 0, 100)], free=1000), 0.0)
    # 0: 2 x 100/110 + 1 + 1/6 is more than 1: 0 + 1 + 1.
    assert policy.pick(asked(), 0.0) == 0
    # The longest queue takes the whole point: 0: 1.82 + 0 + 1/6, 1: 0 + 1 + 1.
    policy.hear(frame(0, [], waiting=9, free=1000), 0.0)
    assert policy.pick(asked(), 0.0) == 1


def test_ours_goes_where_the_prefix_is_and_waits_when_every_slot_is_taken() -> None:
    policy = Sluice([Gpu(running_max=2)] * 2, Random(1))
    policy.hear(frame(1, [KvChange(True, PREFIX, 0, 100)]), 0.0)
    kept = asked()
    assert policy.cached(kept) == [0, 100 * BLOCK_TOKENS]
    assert policy.pick(kept, 0.0) == 1
    assert sorted(str(policy.pick(asked(), 0.0)) for _ in range(3)) == ["0", "0", "1"]
    late = asked()
    assert policy.pick(late, 0.0) is None
    ended = frame(1, [])
    ended.frame.ended.append(kept)
    assert policy.hear(ended, 1.0) == [(late, 1)]


def test_a_block_that_came_and_went_in_one_frame_is_told_as_gone() -> None:
    own = SEGMENTS.make(3)
    events = kv_events([KvChange(True, own, 0, 3), KvChange(False, own, 1, 3)], 1)
    assert split_hashes(events.stored) == own.hashes(0, 1)
    assert split_hashes(events.removed) == own.hashes(1, 3)
