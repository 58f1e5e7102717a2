"""Cache events on their way to the gateways: merged, numbered without a gap, never lost."""

from __future__ import annotations

import pytest

from inference.contract.blocks import HASH_BYTES, split_hashes
from inference.contract.codec import decode_from_node
from inference.contract.frames import KvEvents
from inference.node.cache import CacheNews
from tests.support.waiting import until


def blocks(*numbers: int) -> bytes:
    return b"".join(bytes([number]).ljust(HASH_BYTES, b"\0") for number in numbers)


class Reader:
    """A gateway that applies what it is sent."""

    def __init__(self) -> None:
        self.frames: list[KvEvents] = []
        self.has: set[bytes] = set()

    def take(self, data: bytes) -> None:
        frame = decode_from_node(data)
        assert isinstance(frame, KvEvents)
        if self.frames and not frame.snapshot:
            assert frame.seq == self.frames[-1].seq + 1
        self.frames.append(frame)
        if frame.snapshot:
            self.has.clear()
        self.has.difference_update(split_hashes(frame.removed))
        self.has.update(split_hashes(frame.stored))


@pytest.fixture
async def reader() -> Reader:
    return Reader()


async def test_what_comes_while_the_engine_works_is_merged_and_comes_in_time(
    reader: Reader,
) -> None:
    news = CacheNews(reader.take)
    news.idle = False
    for seq in range(1, 201):
        gone = blocks(seq - 1) if seq > 1 else b""
        news.add(KvEvents(seq=seq, stored=blocks(seq), removed=gone))
    last = set(split_hashes(blocks(200)))
    await until(lambda: reader.has == last)
    assert len(reader.frames) < 200
    assert sum(len(frame.stored) for frame in reader.frames) < 200 * HASH_BYTES


async def test_nothing_waits_while_the_engine_rests(reader: Reader) -> None:
    news = CacheNews(reader.take)
    for seq in (1, 2):
        news.add(KvEvents(seq=seq, stored=blocks(seq), removed=b""))
        assert reader.has == set(split_hashes(blocks(*range(1, seq + 1))))


async def test_a_snapshot_may_know_what_is_still_kept_back(reader: Reader) -> None:
    news = CacheNews(reader.take)
    news.idle = False
    for seq in (7, 8, 9):
        news.add(KvEvents(seq=seq, stored=blocks(seq), removed=b""))
    reader.take(news.snapshot(KvEvents(seq=9, stored=blocks(7, 8, 9), removed=b"", snapshot=True)))
    news.add(KvEvents(seq=10, stored=blocks(10), removed=blocks(7)))
    news.flush()
    assert reader.has == set(split_hashes(blocks(8, 9, 10)))


async def test_a_cache_that_is_lost_is_told_at_once(reader: Reader) -> None:
    news = CacheNews(reader.take)
    news.idle = False
    news.add(KvEvents(seq=1, stored=blocks(1), removed=b""))
    news.add(KvEvents(seq=1, stored=b"", removed=b"", snapshot=True, unknown=True))
    assert reader.frames[-1].unknown and not reader.has
