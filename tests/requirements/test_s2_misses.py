"""S2: a prefix that was not cached is explained, by what changed in it and where."""

from __future__ import annotations

from typing import Any

import msgspec

from inference.compact.options import CompactOptions
from inference.engines.compact import CompactEngine
from tests.support.fleet import MODEL, running_node
from tests.support.ports import KEY, PROJECT
from tests.support.serving import Serving
from tests.support.shipped import SHIPPED

BLOCK_TOKENS = 32
RULES = "Answer questions on hotels. Be short, be kind and never invent a price. " * 8


async def ask(bare: Serving, system: str) -> dict[str, Any]:
    """One chat; what its record says of the cache."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "A pool?"}]
    answer = await bare.client.post(
        "/v1/chat/completions",
        json={"model": MODEL, "messages": messages, "max_tokens": 2},
        headers={"authorization": f"Bearer {KEY}"},
    )
    assert answer.status_code == 200
    await bare.under_test.at_rest()
    record = bare.under_test.recorder.records[-1]
    told: dict[str, Any] = msgspec.json.decode(record.receipt)
    assert told["delivered_cached_tokens"] == record.cached_tokens
    return told


def keep_content(bare: Serving) -> None:
    keys = bare.under_test.keys
    project = msgspec.structs.replace(keys.current.projects[PROJECT], content=True)
    projects = {**keys.current.projects, PROJECT: project}
    keys.current = msgspec.structs.replace(keys.current, projects=projects)


async def test_a_timestamp_at_the_beginning_is_named_and_priced(bare: Serving) -> None:
    options = CompactOptions(name=MODEL, device="cpu", dtype="float32", block_size=BLOCK_TOKENS)
    async with running_node(CompactEngine(SHIPPED, options), bare.under_test.fleet_url, SHIPPED):
        await bare.under_test.served()
        assert (await ask(bare, f"It is 10:15:03. {RULES}"))["miss"]["cause"] == "first_seen"
        # The whole prompt again: all of its blocks are there.
        assert "miss" not in await ask(bare, f"It is 10:15:03. {RULES}")
        miss = (await ask(bare, f"It is 11:48:59. {RULES}"))["miss"]
        assert (miss["cause"], miss["block"]) == ("timestamp", 0)
        assert miss["avoidable_tokens"] >= BLOCK_TOKENS
        assert miss["cost_nano"] > 0 and miss["prefill_ms"] > 0
        # The project has not asked for its texts to be kept.
        assert miss.get("around") is None
        keep_content(bare)
        # Now it has, but not of the prompt before.
        assert (await ask(bare, f"It is 12:01:30. {RULES}"))["miss"].get("around") is None
        around = (await ask(bare, f"It is 13:22:47. {RULES}"))["miss"]["around"]
        assert around["now"] in "13:22:47" and around["was"] in "12:01:30"
