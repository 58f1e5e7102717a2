"""S5: what changes near the beginning of prompts is foreseen, found, priced and counted by key."""

from __future__ import annotations

from typing import Any

from controlplane.kernel.hygiene import VOLATILE
from inference.compact.options import CompactOptions
from inference.engines.compact import CompactEngine
from tests.support.fleet import MODEL, running_node
from tests.support.ports import KEY_ID
from tests.support.serving import Serving
from tests.support.shipped import SHIPPED

BLOCK_TOKENS = 32
RULES = "Answer questions on hotels. Be short, be kind and never invent a price. " * 8


def body(time: str) -> dict[str, Any]:
    """A chat whose system message begins with a time."""
    system = f"It is {time}. {RULES}"
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "A pool?"}]
    return {"model": MODEL, "messages": messages, "max_tokens": 2}


async def foreseen(bare: Serving, time: str) -> dict[str, Any]:
    """What the check says."""
    answer = await bare.client.post("/v1/preflight", json=body(time))
    assert answer.status_code == 200
    told: dict[str, Any] = answer.json()
    return told


async def served(bare: Serving, time: str) -> dict[str, Any]:
    """The usage of the request itself."""
    answer = await bare.client.post("/v1/chat/completions", json=body(time))
    assert answer.status_code == 200
    await bare.under_test.at_rest()
    usage: dict[str, Any] = answer.json()["usage"]
    return usage


async def test_cache_and_waste_are_foreseen_as_they_come(bare: Serving) -> None:
    options = CompactOptions(name=MODEL, device="cpu", dtype="float32", block_size=BLOCK_TOKENS)
    seen = bare.under_test.waste.seen
    async with running_node(CompactEngine(SHIPPED, options), bare.under_test.fleet_url, SHIPPED):
        await bare.under_test.served()
        cold = await foreseen(bare, "10:15:03")
        assert cold["tokens"]["cached_predicted"] == 0 and cold["hygiene"] == []
        await served(bare, "10:15:03")
        assert [one.findings for one in seen] == [()]
        # All full blocks are there now: the check says how much of it the cache will give.
        warm = await foreseen(bare, "10:15:03")
        usage = await served(bare, "10:15:03")
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert warm["tokens"]["cached_predicted"] == cached > 0
        assert warm["tokens"]["prompt"] == usage["prompt_tokens"]
        # Another time, and nothing of it is of use: foreseen, and found once it was paid for.
        (ahead,) = (await foreseen(bare, "11:48:59"))["hygiene"]
        await served(bare, "11:48:59")
        (found,) = seen[-1].findings
        assert (ahead["kind"], found.kind, seen[-1].key) == (VOLATILE, VOLATILE, KEY_ID)
        assert ahead["tokens"] == found.tokens >= BLOCK_TOKENS
        assert ahead["saves_nano"] == found.nano > 0
