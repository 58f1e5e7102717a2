"""S5: a request is checked before it is sent: tokens, price, hold, fit, cache, limits, hygiene."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from controlplane.gateway.ports import Allowance, BudgetRoom, KeyStanding, Room
from controlplane.gateway.snapshot import Limits
from controlplane.gateway.tasks.preflight_turns import AT_ONCE_MAX, PER_MIN_MAX
from controlplane.kernel.price import TokenCounts, charge_nano
from tests.support.fleet import MODEL
from tests.support.ports import KEY, PRICE, make_key
from tests.support.serving import Serving
from tests.support.waiting import until

PRINTED = json.dumps({"name": "Harbour", "note": None, "tags": [], "rooms": [1, 2]}, indent=8)


def body(text: str = "abcd", **more: Any) -> dict[str, Any]:
    """A chat of one message."""
    asked = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 6}
    return {**asked, **more}


async def check(serving: Serving, **more: Any) -> dict[str, Any]:
    """What the check says."""
    answer = await serving.client.post("/v1/preflight", json=body(**more))
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_it_foresees_what_the_request_is_charged_and_nothing_runs(serving: Serving) -> None:
    told = await check(serving)
    under_test = serving.under_test
    assert not under_test.ledger.open and not under_test.recorder.records
    assert not under_test.waste.seen and under_test.limiter.under_way == 0
    answer = (await serving.chat()).json()
    await under_test.at_rest()
    usage = answer["usage"]
    assert told["would_run"] and told["refusals"] == [] and told["tokens"]["counted"]
    assert told["tokens"]["prompt"] == usage["prompt_tokens"]
    assert told["tokens"]["output_at_most"] == usage["completion_tokens"] == 6
    counts = TokenCounts(uncached=usage["prompt_tokens"], cached=0, output=6)
    assert told["cost"]["at_most_nano"] == charge_nano(PRICE, counts)
    assert told["cost"]["held_nano"] >= told["cost"]["at_most_nano"]
    assert told["served_by"] == {
        "model": MODEL, "pool": "default", "region": "local", "nodes": 1,
    }  # fmt: skip


async def test_a_prompt_beyond_the_window_is_told_with_its_refusal(serving: Serving) -> None:
    told = await check(serving, text="x" * 5_000)
    assert not told["would_run"] and not told["context"]["fits"]
    (refusal,) = told["refusals"]
    refused = await serving.client.post("/v1/chat/completions", json=body("x" * 5_000))
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, refusal["message"])


async def test_limits_and_budgets_that_bind_are_named(serving: Serving) -> None:
    under_test = serving.under_test
    rooms = (Room("requests", "project", 60, 0, 20.0), Room("tokens", "key", 9_000, 8_000, 1.0))
    under_test.limiter.answer = Allowance(allowed=True, rooms=rooms)
    budget = BudgetRoom(
        scope="key", limit_nano=100, spent_nano=90, held_nano=0, period="day", turns_at_s=None
    )
    under_test.standings.standing = KeyStanding(budgets=(budget,))
    told = await check(serving)
    assert [(one["scope"], one["binds"]) for one in told["limits"]] == [
        ("project", True), ("key", False),
    ]  # fmt: skip
    assert [one["binds"] for one in told["budgets"]] == [True]
    assert [one["code"] for one in told["refusals"]] == [
        "rate_limit_exceeded", "insufficient_quota",
    ]  # fmt: skip


async def test_limits_of_the_end_user_and_the_model_are_asked_too(serving: Serving) -> None:
    limits = Limits(per_user=Limits(requests_per_min=1), models={MODEL: Limits(concurrency=7)})
    serving.under_test.keys.keys[KEY] = make_key(limits=limits)
    assert (await serving.chat(user="ann")).status_code == 200
    told = await check(serving, user="ann")
    rooms = {(one["scope"], one["dimension"]): one for one in told["limits"]}
    assert rooms["user", "requests"]["binds"] and rooms["model", "concurrency"]["remaining"] == 7
    assert not told["would_run"]
    assert told["refusals"][0]["message"].startswith("The end user's limit of 1 requests")
    assert (await check(serving, user="bob"))["would_run"]


async def test_waste_is_found_before_it_is_paid_for(serving: Serving) -> None:
    told = await check(serving, text=f"{PRINTED} A pool?")
    (found,) = told["hygiene"]
    assert found["kind"] == "dead_json" and found["tokens"] > 0 and found["fix"]
    assert found["saves_nano"] > 0
    await serving.chat()
    await serving.under_test.at_rest()
    again = await check(serving)
    assert [one["kind"] for one in again["hygiene"]] == ["retry"]


async def test_without_a_node_it_says_so_and_counts_a_bound(bare: Serving) -> None:
    told = await check(bare)
    assert [one["code"] for one in told["refusals"]] == ["no_node_available"]
    assert not told["tokens"]["counted"] and told["tokens"]["prompt"] > 4


async def test_it_is_checked_as_the_request_would_be(bare: Serving) -> None:
    wrong = await bare.client.post("/v1/preflight", json=body(temperature="hot"))
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "temperature")
    stranger = await bare.client.post(
        "/v1/preflight", json=body(), headers={"authorization": "Bearer sk_nobody"}
    )
    assert stranger.status_code == 401
    assert (await bare.client.get("/v1/preflight")).status_code == 405


async def test_a_key_may_check_so_often(bare: Serving) -> None:
    codes = [
        (await bare.client.post("/v1/preflight", json=body())).status_code
        for _ in range(PER_MIN_MAX + 5)
    ]
    assert codes[:PER_MIN_MAX] == [200] * PER_MIN_MAX and codes[-1] == 429


async def test_bodies_that_come_slowly_take_nobodys_turn(bare: Serving) -> None:
    go_on = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        whole = json.dumps(body()).encode()
        yield whole[:1]
        await go_on.wait()
        yield whole[1:]

    async with asyncio.TaskGroup() as group:
        slow = [
            group.create_task(bare.client.post("/v1/preflight", content=slowly()))
            for _ in range(AT_ONCE_MAX)
        ]
        await until(lambda: bare.under_test._gateway.serving == AT_ONCE_MAX)
        await check(bare)
        go_on.set()
    assert {(await task).status_code for task in slow} <= {200, 429}
