"""The prefix cache: hits are counted per request, tenants share nothing, and its index is exact."""

from __future__ import annotations

from inference.contract.blocks import chain_hashes, split_hashes
from inference.contract.capabilities import Capability
from tests.inference.conformance.served import Served
from tests.inference.conformance.subjects import declaring
from tests.support.shipped import long_prompt

PROMPT_TOKENS = 257


@declaring(Capability.PREFIX_CACHE)
async def test_all_full_blocks_but_the_last_tokens_are_found(served: Served) -> None:
    first = await served.run(served.job(PROMPT_TOKENS, max_tokens=1))
    second = await served.run(served.job(PROMPT_TOKENS, max_tokens=1))
    assert first[-1].usage.cached_tokens == 0
    # The last token is always computed, since its row draws the next one.
    block = served.engine.facts.block_size
    assert second[-1].usage.cached_tokens == (PROMPT_TOKENS - 1) // block * block
    changed = [*long_prompt(PROMPT_TOKENS)[: 2 * block], *long_prompt(100)]
    third = await served.run(served.job(changed, max_tokens=1))
    assert third[-1].usage.cached_tokens == 2 * block


@declaring(Capability.PREFIX_CACHE, Capability.N)
async def test_choices_do_not_count_each_others_blocks(served: Served) -> None:
    outputs = await served.run(served.job(PROMPT_TOKENS, n=3, max_tokens=2))
    assert {each.usage.cached_tokens for each in outputs} == {0}


@declaring(Capability.SALT)
async def test_tenants_share_nothing(served: Served) -> None:
    await served.run(served.job(PROMPT_TOKENS, max_tokens=1))
    other = await served.run(served.job(PROMPT_TOKENS, max_tokens=1, salt=b"bob"))
    assert other[-1].usage.cached_tokens == 0


@declaring(Capability.KV_EVENTS)
async def test_events_carry_the_index_from_snapshot_to_snapshot(served: Served) -> None:
    before = served.engine.kv_snapshot()
    assert before.snapshot
    for length in (100, 200, 150):
        await served.run(served.job(length, max_tokens=30))
    wanted = set(chain_hashes(long_prompt(150), served.engine.facts.block_size, served.salt))
    await served.sink.until(lambda: wanted <= set(split_hashes(served.engine.kv_snapshot().stored)))
    after = served.engine.kv_snapshot()
    await served.sink.until(lambda: bool(served.sink.kv) and served.sink.kv[-1].seq >= after.seq)
    found = set(split_hashes(before.stored))
    numbers = []
    for events in served.sink.kv:
        if before.seq < events.seq <= after.seq:
            numbers.append(events.seq)
            found |= set(split_hashes(events.stored))
            found -= set(split_hashes(events.removed))
    assert numbers == list(range(before.seq + 1, after.seq + 1))
    assert found == set(split_hashes(after.stored))


@declaring(Capability.KV_EVENTS)
async def test_steps_tell_what_was_prefilled_and_what_stays_in_the_cache(served: Served) -> None:
    """Routing learns speeds from the one, and what a miss evicts from the other."""
    tokens, size = 250, served.engine.facts.block_size
    await served.run(served.job(tokens, max_tokens=2))
    await served.idle()
    prefilled = [step.prefilled_tokens for step in served.sink.steps]
    assert sum(prefilled) == tokens
    assert all(step.step_us for step in served.sink.steps if step.prefilled_tokens)
    assert served.sink.steps[-1].waiting_tokens == 0
    chain = set(chain_hashes(long_prompt(tokens), size, served.salt))
    await served.sink.until(lambda: chain <= set(split_hashes(served.engine.kv_snapshot().stored)))
    # What is stored is told a step later where it comes by another way.
    await served.run(served.job(1, max_tokens=1))
    await served.idle()
    last = served.sink.steps[-1]
    known = len(split_hashes(served.engine.kv_snapshot().stored))
    assert len(chain) <= last.kv_cached_blocks <= known
    assert last.oldest_block_s > 0


@declaring(Capability.KV_EVENTS)
async def test_what_is_evicted_leaves_the_index(served: Served) -> None:
    """Prompts of far more blocks than the cache has."""
    prompts = [[token + number for token in long_prompt(300)] for number in range(4)]
    for prompt in prompts:
        await served.run(served.job(prompt, max_tokens=1))
    size = served.engine.facts.block_size
    first, last = (
        set(chain_hashes(prompt, size, served.salt)) for prompt in (prompts[0], prompts[-1])
    )

    def known() -> set[bytes]:
        return set(split_hashes(served.engine.kv_snapshot().stored))

    await served.sink.until(lambda: last <= known() and not first & known())
    assert len(known()) <= served.engine.facts.kv_blocks
