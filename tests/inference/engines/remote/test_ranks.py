"""A server with several data-parallel ranks: each has a cache, and gateways are told of all."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from inference.contract.blocks import split_hashes
from inference.engines.remote.ranks import RANK_HEADER, address_at
from tests.inference.engines.remote.rig import Rig, make_job, started, upstream
from tests.inference.engines.remote.test_cache import BLOCKS, OURS, block, known, metrics_of
from tests.support.publisher import Publisher, publishers
from tests.support.upstream import HandUpstream, text_chunk, usage_chunk

__all__ = ["upstream"]

PROMPT = b"".join(OURS)


@pytest.fixture
async def ranks() -> AsyncIterator[list[Publisher]]:
    async with publishers(2) as made:
        yield made


@pytest.fixture
async def rig(upstream: HandUpstream, ranks: list[Publisher]) -> AsyncIterator[Rig]:
    upstream.listed[0]["owned_by"] = "vllm"
    upstream.answers["/metrics"] = (200, metrics_of(0) + metrics_of(1))
    async with started(upstream, kv_events=ranks[0].addresses, credits=8) as rig:
        for each in ranks:
            await each.joined()
        await rig.sink.until(lambda: known(rig) == [])
        yield rig


@pytest.mark.parametrize(
    ("given", "of_the_third"),
    [
        ("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5559"),
        ("tcp://[::1]:5557,tcp://h:6000", "tcp://[::1]:5559,tcp://h:6002"),
        ("ipc:///run/kv,ipc:///run/replay", "ipc:///run/kv_dp2,ipc:///run/replay_dp2"),
    ],
)
def test_ranks_publish_where_vllm_counts_on_to(given: str, of_the_third: str) -> None:
    assert address_at(given, 0) == given
    assert address_at(given, 2) == of_the_third


async def test_a_block_is_cached_as_long_as_one_rank_has_it(
    rig: Rig, ranks: list[Publisher]
) -> None:
    assert rig.engine.facts.kv_blocks == 2 * BLOCKS
    await ranks[0].publish(block(0))
    await rig.sink.until(lambda: known(rig) == OURS[:1])
    await ranks[1].publish(block(0), block(1))
    await rig.sink.until(lambda: known(rig) == OURS[:2])
    await ranks[1].publish({"type": "BlockRemoved", "block_hashes": [b"b0", b"b1"]})
    await rig.sink.until(lambda: known(rig) == OURS[:1])
    assert split_hashes(rig.sink.kv[-1].removed) == OURS[1:2]
    await ranks[0].publish({"type": "AllBlocksCleared"})
    await rig.sink.until(lambda: known(rig) == [])


async def test_a_request_goes_to_the_rank_that_has_most_of_it(
    rig: Rig, ranks: list[Publisher]
) -> None:
    exchange = await rig.submit(make_job(hashes=PROMPT))
    assert RANK_HEADER not in exchange.headers
    await ranks[0].publish(block(0))
    await ranks[1].publish(block(0), block(1))
    await rig.sink.until(lambda: known(rig) == OURS[:2])
    jobs = [make_job(hashes=PROMPT) for _ in range(3)]
    exchanges = [await rig.submit(job) for job in jobs]
    assert [each.headers[RANK_HEADER] for each in exchanges] == ["1"] * 3
    await exchange.answer(text_chunk("a", finish="stop"), usage_chunk(9, 1))
    # It has three more than the other: where this one is computed is up to the server.
    fifth = await rig.submit(make_job(hashes=PROMPT))
    assert RANK_HEADER not in fifth.headers
    await exchanges[0].answer(text_chunk("a", finish="stop"), usage_chunk(9, 1))
    await rig.sink.finished(jobs[0].request)
    assert (await rig.submit(make_job(hashes=PROMPT))).headers[RANK_HEADER] == "1"
