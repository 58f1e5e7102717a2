"""Ten thousand requests with random cancels: no block is lost, and none is held that is not there.

The pool hands out each block once and refuses more, so that "never above its size" is seen in
what the shadow model reads as well as in the count.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inference.compact.schedule.blocks import BlockPool
from tests.inference.compact.schedule.churn import BLOCKS, Churn, churn

REQUESTS = 10_000


@pytest.fixture(scope="module")
def seen() -> Iterator[Churn]:
    yield churn(REQUESTS, seed=0)


def test_no_block_is_leaked_and_the_pool_keeps_its_size(seen: Churn) -> None:
    assert seen.finished == REQUESTS
    assert seen.blocks_leaked == 0
    assert BLOCKS * 0.9 < seen.blocks_held_max <= BLOCKS


def test_cancels_found_their_requests_in_every_state(seen: Churn) -> None:
    assert min(seen.cancels[state] for state in ("queued", "prefilling", "decoding")) > 100
    assert min(seen.cancels["finished"], seen.preemptions, seen.accepted) > 100


def test_a_leak_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run fails as soon as releases forget a block now and then."""
    release = BlockPool.release

    def forgetful(pool: BlockPool, blocks: list[int], now_us: int) -> None:
        release(pool, blocks[: -1 if now_us % 50 == 0 else None], now_us)

    monkeypatch.setattr(BlockPool, "release", forgetful)
    with pytest.raises(AssertionError):
        churn(300, seed=0)
