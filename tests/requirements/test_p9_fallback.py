"""P9: a route fails over to another pool, degrades to a smaller model, or queues; and says so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.kernel.price import hold_nano
from controlplane.kernel.rules import CanaryRules, Match, Step
from tests.support.fallback import (
    OWN,
    SMALL,
    SMALL_PRICE,
    TO_SMALL,
    TO_SPARE,
    change_small,
    route,
    steps_told,
    text_of,
)
from tests.support.fleet import MODEL, make_model
from tests.support.nodes import hand_node, named_node
from tests.support.ports import KEY, make_key
from tests.support.serving import Serving
from tests.support.waiting import until


@pytest.mark.parametrize("stream", [False, True])
async def test_another_pool_serves_and_the_answer_says_so(bare: Serving, stream: bool) -> None:
    under_test = bare.under_test
    route(under_test, Step(targets=OWN), Step(targets=TO_SPARE))
    async with named_node(under_test, bare.model, "n", pool="spare"):
        answer = await bare.chat(stream=stream)
        assert text_of(answer) == "abcdab"
        assert answer.headers["x-sluice-fallback"] == f"2:{MODEL}"
        assert answer.headers["x-sluice-route"] == "chat@3"
        await under_test.at_rest()
    assert steps_told(under_test) == [
        (1, MODEL, "default", "no_node_available"),
        (2, MODEL, "spare", "served"),
    ]
    assert under_test.recorder.records[0].pool == "spare"


async def test_the_first_step_is_no_fallback(serving: Serving) -> None:
    direct = await serving.chat()
    assert direct.headers["x-sluice-route"] == "direct"
    route(serving.under_test, Step(targets=OWN), Step(targets=TO_SPARE))
    routed = await serving.chat()
    assert routed.headers["x-sluice-route"] == "chat@3"
    assert not any("x-sluice-fallback" in each.headers for each in (direct, routed))
    await serving.under_test.at_rest()
    receipts = [json.loads(each.receipt) for each in serving.under_test.recorder.records]
    assert "steps" not in receipts[0]
    assert [step["reason"] for step in receipts[1]["steps"]] == ["served"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_smaller_model_serves_when_the_nodes_of_the_large_one_are_lost(
    bare: Serving, stream: bool
) -> None:
    under_test = bare.under_test
    route(under_test, Step(targets=OWN), Step(targets=TO_SMALL))
    async with (
        named_node(under_test, bare.model, "n", name=SMALL),
        hand_node(under_test, bare.model) as large,
    ):
        asked = asyncio.create_task(bare.chat(stream=stream))
        await large.job()
        await large.socket.close()
        answer = await asked
        assert text_of(answer) == "abcdab"
        assert answer.headers["x-sluice-fallback"] == f"2:{SMALL}"
        await under_test.at_rest()
    (hold,), (settled,) = under_test.ledger.held.values(), under_test.ledger.settled.values()
    # Held for the dearer of the two, charged by the one that served.
    large_price = under_test.keys.current.models[MODEL].price
    assert (hold.model, hold.others) == (MODEL, {SMALL: SMALL_PRICE})
    assert hold.amount_nano > hold_nano(SMALL_PRICE, 4, 6)
    assert (settled.model, settled.price) == (SMALL, SMALL_PRICE)
    assert settled.amount_nano == hold_nano(SMALL_PRICE, 4, 6) < hold_nano(large_price, 4, 6)
    (record,) = under_test.recorder.records
    assert (record.model, record.cost_nano) == (SMALL, settled.amount_nano)
    assert [step[-1] for step in steps_told(under_test)][-1] == "served"


async def test_a_model_with_another_tokenizer_gets_tokens_of_its_own(
    bare: Serving, tmp_path: Path
) -> None:
    folder = tmp_path / "longer"
    folder.mkdir()
    longer = make_model(folder)
    template = {"chat_template": "user: {% for m in messages %}{{ m.content }}{% endfor %}"}
    (longer / "tokenizer_config.json").write_text(json.dumps(template))
    under_test = bare.under_test
    route(under_test, Step(targets=OWN), Step(targets=TO_SMALL))
    async with (
        named_node(under_test, longer, "n", name=SMALL),
        hand_node(under_test, bare.model) as large,
    ):
        asked = asyncio.create_task(bare.chat())
        assert len((await large.job()).tokens) == len("abcd")
        await large.socket.close()
        answer = await asked
        assert text_of(answer) == "user: "
        assert answer.json()["usage"]["prompt_tokens"] == len("user: abcd")
        await under_test.at_rest()


async def test_a_full_pool_is_left_at_once_or_waited_for_as_the_step_says(bare: Serving) -> None:
    under_test = bare.under_test
    async with (
        hand_node(under_test, bare.model, credits=1) as busy,
        named_node(under_test, bare.model, "n", pool="spare"),
    ):
        running = asyncio.create_task(bare.chat(max_tokens=1))
        job = await busy.job()
        route(under_test, Step(targets=OWN, queue_s=0.0), Step(targets=TO_SPARE))
        moved = await bare.chat()
        assert moved.headers["x-sluice-fallback"] == f"2:{MODEL}"

        route(under_test, Step(targets=OWN, queue_s=20.0), Step(targets=TO_SPARE))
        waiting = asyncio.create_task(bare.chat(max_tokens=1))
        await until(lambda: len(under_test.world.waiting) == 1)
        await busy.answer(job, "x", finish="length")
        assert (await running).status_code == 200
        await busy.answer(await busy.job(), "y", finish="length")
        waited = await waiting
        assert (waited.status_code, waited.headers["x-sluice-node"]) == (200, "hand")
        assert "x-sluice-fallback" not in waited.headers
        await under_test.at_rest()


async def test_who_goes_on_to_another_pool_leaves_those_behind_it_their_nodes(
    bare: Serving,
) -> None:
    under_test = bare.under_test
    async with (
        hand_node(under_test, bare.model, credits=1) as busy,
        hand_node(under_test, bare.model, name="spare", pool="spare", credits=1) as spare,
    ):
        running = asyncio.create_task(bare.chat(max_tokens=1))
        job = await busy.job()
        route(under_test, Step(targets=OWN, queue_s=0.2), Step(targets=TO_SPARE))
        moving = asyncio.create_task(bare.chat(max_tokens=1))
        await until(lambda: len(under_test.world.waiting) == 1)
        route(under_test, Step(targets=OWN, queue_s=20.0))
        behind = asyncio.create_task(bare.chat(max_tokens=1))
        await until(lambda: len(under_test.world.waiting) == 2)
        moved = await spare.job()
        async with named_node(under_test, bare.model, "second"):
            assert (await behind).headers["x-sluice-node"] == "second"
        await spare.answer(moved, "x", finish="length")
        assert (await moving).headers["x-sluice-node"] == "spare"
        await busy.answer(job, "x", finish="length")
        assert (await running).status_code == 200
        await under_test.at_rest()


async def test_nothing_moves_after_the_first_token(bare: Serving) -> None:
    under_test = bare.under_test
    route(under_test, Step(targets=OWN), Step(targets=TO_SPARE))
    async with (
        hand_node(under_test, bare.model, name="first") as first,
        hand_node(under_test, bare.model, name="spare", pool="spare") as spare,
    ):
        asked = asyncio.create_task(bare.chat(stream=True))
        await first.answer(await first.job(), "a")
        await until(lambda: under_test.world.fleet.nodes()["first"].account.active)
        await first.socket.close()
        answer = await asked
        assert "node_lost" in answer.text
        assert "[DONE]" not in answer.text
        assert not spare.jobs
        await under_test.at_rest()


async def test_after_the_last_step_the_request_is_refused_with_all_of_them(bare: Serving) -> None:
    under_test = bare.under_test
    route(under_test, Step(targets=OWN), Step(targets=TO_SPARE), Step(targets=TO_SMALL))
    answer = await bare.chat()
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["x-sluice-route"] == "chat@3"
    assert "x-sluice-fallback" not in answer.headers
    tried = [(step["step"], step["model"]) for step in answer.json()["error"]["degraded"]["steps"]]
    assert tried == [(1, MODEL), (2, MODEL), (3, SMALL)]
    await under_test.at_rest()
    assert [step[-1] for step in steps_told(under_test)] == ["no_node_available"] * 3
    assert all(each.amount_nano == 0 for each in under_test.ledger.settled.values())


async def test_a_node_lost_on_the_way_to_a_refusal_leaves_nothing_open(bare: Serving) -> None:
    under_test = bare.under_test
    route(under_test, Step(targets=OWN), Step(targets=TO_SMALL))
    async with hand_node(under_test, bare.model) as large:
        asked = asyncio.create_task(bare.chat())
        await large.job()
        await large.socket.close()
        assert (await asked).status_code == 503
        # Its report, should the node come back, would else be left unanswered for ever.
        await under_test.at_rest()


async def test_a_fallback_that_cannot_serve_the_request_is_left_out(bare: Serving) -> None:
    under_test = bare.under_test
    route(under_test, Step(targets=OWN), Step(targets=TO_SMALL), Step(targets=TO_SPARE))
    change_small(under_test, output_tokens_max=5)
    async with (
        named_node(under_test, bare.model, "n", name=SMALL),
        named_node(under_test, bare.model, "m", pool="spare"),
    ):
        answer = await bare.chat(max_tokens=6)
        assert answer.headers["x-sluice-fallback"] == f"3:{MODEL}"
        await under_test.at_rest()
    assert [step[-1] for step in steps_told(under_test)] == [
        "no_node_available",
        "max_tokens",
        "served",
    ]


async def test_a_window_that_is_too_small_passes_the_step_but_not_the_first(bare: Serving) -> None:
    under_test = bare.under_test
    route(under_test, Step(targets=OWN), Step(targets=TO_SMALL))
    change_small(under_test, context_window=8)
    async with named_node(under_test, bare.model, "n", name=SMALL):
        answer = await bare.chat()
        assert answer.json()["error"]["code"] == "no_node_available"
        await under_test.at_rest()
        assert [step[-1] for step in steps_told(under_test)][-1] == "context_length_exceeded"
        route(under_test, Step(targets=TO_SMALL), Step(targets=OWN))
        change_small(under_test, context_window=8)
        hard = await bare.chat()
        assert (hard.status_code, hard.json()["error"]["code"]) == (400, "context_length_exceeded")
        await under_test.at_rest()


async def test_a_rule_shortens_the_deadline(bare: Serving) -> None:
    route(bare.under_test, Step(targets=OWN), deadline_s=1)
    async with hand_node(bare.under_test, bare.model) as node:
        asked = asyncio.create_task(bare.chat())
        job = await node.job()
        assert 0 < job.deadline_ms <= 1_000
        await until(lambda: node.cancelled)
        await node.answer(job, finish="cancelled")
        answer = await asked
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
        await bare.under_test.at_rest()
    (hold,) = bare.under_test.ledger.held.values()
    assert hold.expires_s < 600


async def test_a_trial_serves_its_share_under_its_own_label(serving: Serving) -> None:
    under_test = serving.under_test
    rule = route(under_test, Step(targets=OWN))
    trial = msgspec.structs.replace(rule, name="next", version=4)
    labels = []
    for permille in (1000, 0):
        keys = under_test.keys
        candidate = CanaryRules(rules=(trial,), share_permille=permille)
        keys.current = msgspec.structs.replace(keys.current, candidate=candidate)
        labels.append((await serving.chat()).headers["x-sluice-route"])
    assert labels == ["next@4", "chat@3"]


@pytest.mark.parametrize(
    ("allowed", "status"), [(None, 200), ({"smart"}, 200), ({MODEL}, 403), (set(), 403)]
)
async def test_a_key_is_bound_by_the_name_that_it_may_use_not_by_where_it_leads(
    serving: Serving, allowed: set[str] | None, status: int
) -> None:
    under_test = serving.under_test
    match = Match(aliases=frozenset({"smart"}))
    route(under_test, Step(targets=OWN), match=match)
    models = None if allowed is None else frozenset(allowed)
    under_test.keys.keys[KEY] = make_key(models=models)
    answer = await serving.chat(model="smart")
    assert answer.status_code == status
    if status == 200:
        assert answer.headers["x-sluice-route"] == "chat@3"


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"max_tokens": 2_000}, None, "max_tokens"),
        ({"model": "nowhere"}, "model_not_found", "model"),
    ],
)
async def test_what_the_first_step_cannot_do_is_said_at_once(
    serving: Serving, fields: dict[str, Any], code: str | None, param: str
) -> None:
    match = Match(aliases=frozenset({MODEL}))
    route(serving.under_test, Step(targets=OWN), Step(targets=TO_SMALL), match=match)
    answer = await serving.chat(**fields)
    error = answer.json()["error"]
    assert answer.status_code in (400, 404)
    assert (error["code"], error["param"]) == (code, param)


async def test_aliases_are_listed_for_those_whom_a_rule_leads_on(serving: Serving) -> None:
    under_test = serving.under_test
    match = Match(aliases=frozenset({"smart"}), tags=frozenset({"web"}), prompt_tokens_min=9)
    route(under_test, Step(targets=TO_SMALL), match=match)
    change_small(under_test, context_window=99)

    async def listed() -> list[str]:
        answer = await serving.client.get("/v1/models")
        return [model["id"] for model in answer.json()["data"]]

    assert await listed() == [SMALL, MODEL]
    assert (await serving.client.get("/v1/models/smart")).status_code == 404
    under_test.keys.keys[KEY] = make_key(tags=frozenset({"web"}))
    assert await listed() == [SMALL, "smart", MODEL]
    shown = (await serving.client.get("/v1/models/smart")).json()
    assert (shown["id"], shown["context_window"]) == ("smart", 99)
    under_test.keys.keys[KEY] = make_key(tags=frozenset({"web"}), models=frozenset({"smart"}))
    assert await listed() == ["smart"]
