"""S5: what changes near the beginning of prompts is foreseen, found, priced and counted by key."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec

from controlplane.kernel.insights.hygiene import (
    DEAD_JSON,
    KINDS,
    NOT_STREAMED,
    OVERSIZED,
    RETRY,
    UNBOUNDED,
    VOLATILE,
    WasteFinding,
)
from inference.compact.options import CompactOptions
from inference.engines.compact import CompactEngine
from tests.support.fleet import MODEL, echo_node, running_node
from tests.support.ports import KEY_ID
from tests.support.serving import Serving
from tests.support.shipped import SHIPPED
from tests.support.waiting import until

BLOCK_TOKENS = 32
ANSWER_TOKENS = 600
SECRET = "zebrafish"
PRINTED = json.dumps({"name": SECRET, "note": None, "tags": [], "rooms": [1, 2]}, indent=8)
# Text, bound of the answer, and what is found of it; the last is the same request again.
WASTEFUL: tuple[tuple[str, int | None, list[str]], ...] = (
    (PRINTED, 4, [DEAD_JSON]),
    (f"{SECRET} " * 250, 4, [OVERSIZED]),
    (SECRET, None, [UNBOUNDED, NOT_STREAMED]),
    (f"Once more, {SECRET}", 4, []),
    (f"Once more, {SECRET}", 4, [RETRY]),
)
RULES = "Answer questions on hotels. Be short, be kind and never invent a price. " * 8


def body(time: str) -> dict[str, Any]:
    """A chat whose system message begins with a time."""
    system = f"It is {time}. {RULES}"
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "A pool?"}]
    return {"model": MODEL, "messages": messages, "max_tokens": 2}


async def foreseen(steady: Serving, time: str) -> dict[str, Any]:
    """What the check says."""
    answer = await steady.client.post("/v1/preflight", json=body(time))
    assert answer.status_code == 200
    told: dict[str, Any] = answer.json()
    return told


async def served(steady: Serving, time: str) -> dict[str, Any]:
    """The usage of the request itself."""
    answer = await steady.client.post("/v1/chat/completions", json=body(time))
    assert answer.status_code == 200
    await steady.under_test.at_rest()
    usage: dict[str, Any] = answer.json()["usage"]
    return usage


async def test_cache_and_waste_are_foreseen_as_they_come(steady: Serving) -> None:
    options = CompactOptions(name=MODEL, device="cpu", dtype="float32", block_size=BLOCK_TOKENS)
    seen = steady.under_test.waste.seen
    async with running_node(CompactEngine(SHIPPED, options), steady.under_test.fleet_url, SHIPPED):
        await steady.under_test.served()
        cold = await foreseen(steady, "10:15:03")
        assert cold["tokens"]["cached_predicted"] == 0 and cold["hygiene"] == []
        await served(steady, "10:15:03")
        assert [one.findings for one in seen] == [()]
        # All full blocks are there now: the check says how much of it the cache will give.
        warm = await foreseen(steady, "10:15:03")
        usage = await served(steady, "10:15:03")
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert warm["tokens"]["cached_predicted"] == cached > 0
        assert warm["tokens"]["prompt"] == usage["prompt_tokens"]
        # Another time, and nothing of it is of use: foreseen, and found once it was paid for.
        (ahead,) = (await foreseen(steady, "11:48:59"))["hygiene"]
        await served(steady, "11:48:59")
        (found,) = seen[-1].findings
        assert (ahead["kind"], found.kind, seen[-1].key) == (VOLATILE, VOLATILE, KEY_ID)
        assert ahead["tokens"] == found.tokens >= BLOCK_TOKENS
        assert ahead["saves_nano"] == found.nano > 0


async def test_a_check_finds_what_the_request_is_counted_with_and_no_text_is_kept(
    steady: Serving,
) -> None:
    under_test = steady.under_test

    def counted(number: int) -> bool:
        return len(under_test.waste.seen) == number

    like = under_test.keys.current.models[MODEL]
    model = msgspec.structs.replace(like, output_tokens_default=ANSWER_TOKENS)
    under_test.keys.current = msgspec.structs.replace(
        under_test.keys.current, models={MODEL: model}
    )
    async with echo_node(under_test.fleet_url, steady.model):
        await under_test.served()
        for number, (text, bound, kinds) in enumerate(WASTEFUL, start=1):
            messages = [{"role": "user", "content": text}]
            asked = {"model": MODEL, "messages": messages, "max_tokens": bound}
            ahead = await steady.client.post("/v1/preflight", json=asked)
            answer = await steady.client.post("/v1/chat/completions", json=asked)
            assert (ahead.status_code, answer.status_code) == (200, 200)
            await until(partial(counted, number))
            told = ahead.json()["hygiene"]
            assert [one["kind"] for one in told] == kinds
            assert all(one["fix"] == KINDS[one["kind"]][1] for one in told)
            assert all(one["tokens"] > 0 for one in told)
            assert under_test.waste.seen[-1].findings == tuple(
                WasteFinding(one["kind"], one["tokens"], one["saves_nano"]) for one in told
            )
    assert {one.key for one in under_test.waste.seen} == {KEY_ID}
    assert SECRET not in repr(under_test.waste.seen) + repr(under_test.recorder.records)
