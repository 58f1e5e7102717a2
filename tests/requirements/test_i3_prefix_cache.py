"""I3: a repeated prompt is served from the cache by whole blocks, never across tenants, and across
projects and time only as far as they want.
"""

from __future__ import annotations

from typing import Any

import msgspec

from inference.compact.options import CompactOptions
from inference.engines.compact import CompactEngine
from tests.support.fleet import MODEL, running_node
from tests.support.ports import KEY, PROJECT, make_key
from tests.support.serving import Serving
from tests.support.shipped import SHIPPED, long_prompt

BLOCK_TOKENS = 32
PROMPT_TOKENS = 321
OTHER_PROJECT = "c" * 32


def give_charlie_a_key(bare: Serving, **decided: Any) -> None:
    keys = bare.under_test.keys
    other = msgspec.structs.replace(keys.current.projects[PROJECT], id=OTHER_PROJECT, **decided)
    projects = {**keys.current.projects, OTHER_PROJECT: other}
    keys.current = msgspec.structs.replace(keys.current, projects=projects)
    keys.keys["sk_charlie"] = make_key(project=OTHER_PROJECT)


async def cached_tokens(bare: Serving, key: str) -> int:
    answer = await bare.client.post(
        "/v1/completions",
        json={"model": MODEL, "prompt": long_prompt(PROMPT_TOKENS), "max_tokens": 2},
        headers={"authorization": f"Bearer {key}"},
    )
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


async def test_whole_blocks_are_reused_by_their_own_tenant_only(bare: Serving) -> None:
    give_charlie_a_key(bare, salt=b"c")
    options = CompactOptions(name=MODEL, device="cpu", dtype="float32", block_size=BLOCK_TOKENS)
    engine = CompactEngine(SHIPPED, options)
    async with running_node(engine, bare.under_test.fleet_url, SHIPPED):
        await bare.under_test.served()
        assert await cached_tokens(bare, KEY) == 0
        assert await cached_tokens(bare, KEY) == (PROMPT_TOKENS - 1) // BLOCK_TOKENS * BLOCK_TOKENS
        assert await cached_tokens(bare, "sk_charlie") == 0
        await bare.under_test.at_rest()


async def test_projects_share_a_prefix_unless_one_of_them_keeps_its_own(bare: Serving) -> None:
    whole = (PROMPT_TOKENS - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    options = CompactOptions(name=MODEL, device="cpu", dtype="float32", block_size=BLOCK_TOKENS)
    async with running_node(CompactEngine(SHIPPED, options), bare.under_test.fleet_url, SHIPPED):
        await bare.under_test.served()
        give_charlie_a_key(bare, cache_shared=False)
        assert await cached_tokens(bare, KEY) == 0
        assert await cached_tokens(bare, "sk_charlie") == 0
        assert await cached_tokens(bare, "sk_charlie") == whole
        give_charlie_a_key(bare)
        assert await cached_tokens(bare, "sk_charlie") == whole
        # Of a week, so that no span ends meanwhile.
        give_charlie_a_key(bare, cache_minutes=7 * 24 * 60)
        assert await cached_tokens(bare, "sk_charlie") == 0
        assert await cached_tokens(bare, "sk_charlie") == whole
        await bare.under_test.at_rest()
