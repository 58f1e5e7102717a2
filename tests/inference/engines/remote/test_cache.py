"""The channel of cache events: what comes becomes ours, what is missed is fetched or forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from inference.contract.blocks import chain_hashes, split_hashes
from inference.engines.remote import cache
from tests.inference.engines.remote.rig import Rig, make_job, started, upstream
from tests.support.publisher import Publisher, publisher, stored
from tests.support.upstream import HandUpstream, text_chunk, usage_chunk

__all__ = ["upstream"]

SIZE, BLOCKS = 4, 64
SALT = b"tenant"
TOKENS = list(range(12))
OURS = chain_hashes(TOKENS, SIZE, SALT)


def metrics_of(engine: int = 0) -> str:
    """What a server says of the cache of one of its engines."""
    sizes = f'block_size="{SIZE}",engine="{engine}",num_gpu_blocks="{BLOCKS}"'
    return f"vllm:cache_config_info{{{sizes}}} 1.0\n"


@pytest.fixture
async def events() -> AsyncIterator[Publisher]:
    async with publisher() as made:
        yield made


@pytest.fixture
async def rig(upstream: HandUpstream, events: Publisher) -> AsyncIterator[Rig]:
    """An engine before a vLLM that publishes."""
    upstream.listed[0]["owned_by"] = "vllm"
    upstream.answers["/metrics"] = (200, f"# HELP\n{metrics_of()}")
    async with started(upstream, kv_events=events.addresses) as rig:
        await events.joined()
        yield rig


def known(rig: Rig) -> list[bytes] | None:
    """The hashes of what the server has cached; None where that is not known."""
    snapshot = rig.engine.kv_snapshot()
    return None if snapshot.unknown else split_hashes(snapshot.stored)


def block(number: int, **changes: Any) -> dict[str, Any]:
    """The event of one block of the chain."""
    tokens = TOKENS[number * SIZE : (number + 1) * SIZE]
    parent = f"b{number - 1}".encode() if number else None
    hashes = [f"b{number}".encode()]
    return stored(hashes, tokens, **{"size": SIZE, "parent": parent, "salt": SALT, **changes})


async def test_an_empty_cache_is_known_at_once_and_then_what_is_stored(
    rig: Rig, events: Publisher
) -> None:
    facts = rig.engine.facts
    assert (facts.block_size, facts.kv_blocks) == (SIZE, BLOCKS)
    await rig.sink.until(lambda: known(rig) == [])
    assert rig.sink.kv[0].snapshot and not rig.sink.kv[0].unknown
    await events.publish(block(0), block(1))
    await rig.sink.until(lambda: known(rig) == OURS[:2])
    assert split_hashes(rig.sink.kv[-1].stored) == OURS[:2]


async def test_what_was_before_and_what_was_missed_is_replayed(
    upstream: HandUpstream, events: Publisher
) -> None:
    upstream.listed[0]["owned_by"] = "vllm"
    upstream.answers["/metrics"] = (200, metrics_of())
    await events.publish(block(0), send=False)
    async with started(upstream, kv_events=events.addresses) as rig:
        await rig.sink.until(lambda: known(rig) == OURS[:1])
        await events.publish(block(1), send=False)
        await events.publish(block(2))
        await rig.sink.until(lambda: known(rig) == OURS)


async def test_what_no_replay_has_is_forgotten_and_so_is_a_server_that_begins_anew(
    rig: Rig, events: Publisher
) -> None:
    await events.publish(block(0), keep=False)
    await rig.sink.until(lambda: known(rig) == OURS[:1])
    await events.publish(block(1), keep=False, send=False)
    await events.publish(block(0, salt=b"other"), keep=False)
    other = chain_hashes(TOKENS[:SIZE], SIZE, b"other")
    await rig.sink.until(lambda: known(rig) == other)
    events.number = 0
    await events.publish(block(0), keep=False)
    await rig.sink.until(lambda: known(rig) == OURS[:1])


async def test_a_channel_that_falls_silent_costs_the_index_until_it_speaks_again(
    rig: Rig, events: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await events.publish(block(0))
    await rig.sink.until(lambda: known(rig) == OURS[:1])
    monkeypatch.setattr(cache, "SILENCE_S", 0.0)
    job = make_job(hashes=b"".join(OURS))
    exchange = await rig.submit(job)
    await exchange.answer(text_chunk("a", finish="stop"), usage_chunk(100, 1))
    await rig.sink.until(lambda: known(rig) is None)
    assert rig.sink.kv[-1].unknown
    await events.publish(block(1))
    await rig.sink.until(lambda: known(rig) == OURS[:2])


async def test_a_channel_that_spoke_while_a_job_ran_owes_nothing_when_it_ends(
    rig: Rig, events: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "SILENCE_S", 0.0)
    job = make_job(hashes=b"".join(OURS))
    exchange = await rig.submit(job)
    # As vLLM does: of what it has computed it tells with the first token.
    await events.publish(block(0), block(1))
    await rig.sink.until(lambda: known(rig) == OURS[:2])
    await exchange.answer(text_chunk("a", finish="stop"), usage_chunk(100, 1))
    await rig.sink.finished(job.request)
    await rig.submit(make_job())
    beats = len(rig.sink.steps)
    # Each beat begins with a look at the channel.
    await rig.sink.until(lambda: sum(bool(each.processing) for each in rig.sink.steps[beats:]) > 1)
    assert known(rig) == OURS[:2]


async def test_what_cannot_be_read_costs_the_index_and_not_the_node(
    rig: Rig, events: Publisher
) -> None:
    await events.publish({"type": "Strange"})
    await rig.sink.until(lambda: bool(rig.sink.kv) and rig.sink.kv[-1].unknown)
    job = make_job()
    exchange = await rig.submit(job)
    await exchange.answer(text_chunk("a", finish="stop"), usage_chunk(9, 1))
    assert (await rig.sink.finished(job.request))[-1].finish == "stop"


async def test_salts_that_events_do_not_tell_are_those_of_what_was_sent(
    upstream: HandUpstream, events: Publisher
) -> None:
    upstream.listed[0]["owned_by"] = "sglang"
    told = {"version": "0.5.6", "tokenizer_path": "m", "page_size": SIZE}
    upstream.answers["/server_info"] = (200, {**told, "max_total_num_tokens": SIZE * BLOCKS})
    async with started(upstream, kv_events=events.addresses) as rig:
        await events.joined()
        assert rig.engine.facts.kv_blocks == BLOCKS
        await rig.submit(make_job(hashes=b"".join(OURS)))
        # As arrays, and hashes as numbers.
        foreign = ["BlockStored", [9], None, [7] * SIZE, SIZE, None]
        await events.publish(["BlockStored", [5, 6], None, TOKENS[: 2 * SIZE], SIZE, None], foreign)
        await rig.sink.until(lambda: known(rig) == OURS[:2])
        await events.publish(["BlockRemoved", [6]])
        await rig.sink.until(lambda: known(rig) == OURS[:1])


async def test_a_server_that_does_not_tell_its_size_is_not_followed(
    upstream: HandUpstream, events: Publisher
) -> None:
    async with started(upstream, kv_events=events.addresses) as rig:
        assert known(rig) is None
        assert "kv_events" not in rig.engine.facts.capabilities
