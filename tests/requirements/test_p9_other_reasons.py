"""P9: a route also leads on from a prompt that does not fit and from content that is withheld, and
so does a client's own list; body, headers and receipt say who served."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from controlplane.kernel.rules import Match, Step
from inference.contract.frames import Rejected
from tests.support.fallback import (
    OWN,
    SMALL,
    TO_SMALL,
    change_small,
    route,
    steps_told,
    text_of,
)
from tests.support.fleet import MODEL
from tests.support.nodes import hand_node, named_node
from tests.support.ports import KEY, make_key
from tests.support.relay import Relay, relay
from tests.support.serving import Serving
from tests.support.upstream import text_chunk, usage_chunk

__all__ = ["relay"]

SECRET = "AKIAABCDEFGHIJKLMNOP"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_does_not_fit_goes_to_a_larger_window(
    bare: Serving, stream: bool
) -> None:
    under_test = bare.under_test
    route(under_test, Step(targets=TO_SMALL), Step(targets=OWN), on_too_long=True)
    change_small(under_test, context_window=8)
    async with (
        named_node(under_test, bare.model, "s", name=SMALL),
        named_node(under_test, bare.model, "l"),
    ):
        answer = await bare.chat(stream=stream)
        assert text_of(answer) == "abcdab"
        assert answer.headers["x-sluice-fallback"] == f"2:{MODEL}"
        await under_test.at_rest()
        assert steps_told(under_test) == [
            (1, SMALL, "default", "context_length_exceeded"),
            (2, MODEL, "default", "served"),
        ]
        small = await bare.chat(max_tokens=2)
        assert (small.headers["x-sluice-model"], small.json()["model"]) == (SMALL, SMALL)
        await under_test.at_rest()


async def test_what_fits_no_window_is_refused_as_that(bare: Serving) -> None:
    under_test = bare.under_test
    route(under_test, Step(targets=TO_SMALL), Step(targets=TO_SMALL), on_too_long=True)
    change_small(under_test, context_window=8)
    async with named_node(under_test, bare.model, "s", name=SMALL):
        answer = await bare.chat()
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        await under_test.at_rest()
    assert all(each.amount_nano == 0 for each in under_test.ledger.settled.values())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("listed", [False, True])
async def test_an_answer_that_is_withheld_is_given_by_the_next(
    relay: Relay, stream: bool, listed: bool
) -> None:
    """An engine ends it with `content_filter`, and then nothing of it has been delivered."""
    under_test = relay.under_test
    nowhere = Match(aliases=frozenset({"no"})) if listed else Match()
    route(
        under_test, Step(targets=OWN), Step(targets=TO_SMALL), on_content_filter=True, match=nowhere
    )
    fields: dict[str, Any] = {"models": [SMALL]} if listed else {}
    async with named_node(under_test, relay.serving.model, "s", name=SMALL):
        asked, exchange = await relay.ask(stream=stream, **fields)
        await exchange.answer(text_chunk("", finish="content_filter"), usage_chunk(4, 0))
        answer = await asked
        assert text_of(answer) == "abcdab"
        assert answer.headers["x-sluice-fallback"] == f"2:{SMALL}"
        assert f'"model":"{SMALL}"' in answer.text and f'"model":"{MODEL}"' not in answer.text
        await under_test.at_rest()
    (record,) = under_test.recorder.records
    steps = [tuple(step.values()) for step in json.loads(record.receipt)["steps"]]
    assert steps == [(1, MODEL, "default", "content_filter"), (2, SMALL, "default", "served")]
    (settled,) = under_test.ledger.settled.values()
    assert settled.model == SMALL


async def test_so_is_one_that_the_safety_layer_has_blocked(bare: Serving) -> None:
    under_test = bare.under_test
    route(under_test, Step(targets=OWN), Step(targets=TO_SMALL), on_content_filter=True)
    snapshot = under_test.keys.current
    blocks = {
        name: type(each)(**{**_fields(each), "safety": "block"})
        for name, each in snapshot.projects.items()
    }
    under_test.keys.current = type(snapshot)(**{**_fields(snapshot), "projects": blocks})
    async with (
        hand_node(under_test, bare.model) as large,
        named_node(under_test, bare.model, "s", name=SMALL),
    ):
        asked = asyncio.create_task(bare.chat(stream=True, max_tokens=60))
        job = await large.job()
        await large.answer(job, f"{SECRET} ")
        # What was cut off is ended before the same node could be asked again.
        await large.answer(job, finish="cancelled")
        answer = await asked
        assert text_of(answer).startswith("abcd") and SECRET not in answer.text
        assert answer.headers["x-sluice-model"] == SMALL
        await under_test.at_rest()


@pytest.mark.parametrize("declared", [True, False])
async def test_what_a_server_refuses_for_its_content_goes_on_where_declared(
    bare: Serving, declared: bool
) -> None:
    under_test = bare.under_test
    route(under_test, Step(targets=OWN), Step(targets=TO_SMALL), on_content_filter=declared)
    async with (
        hand_node(under_test, bare.model) as large,
        named_node(under_test, bare.model, "s", name=SMALL),
    ):
        asked = asyncio.create_task(bare.chat())
        job = await large.job()
        await large.send(Rejected(request=job.request, code="content_filter", message="no"))
        answer = await asked
        if declared:
            assert text_of(answer) == "abcdab"
        else:
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "content_filter")
        await under_test.at_rest()


async def test_the_last_step_delivers_what_there_is(relay: Relay) -> None:
    route(relay.under_test, Step(targets=OWN), on_content_filter=True)
    asked, exchange = await relay.ask()
    await exchange.answer(text_chunk("ab", finish="content_filter"), usage_chunk(4, 2))
    (choice,) = (await asked).json()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("content_filter", "ab")


async def test_a_list_of_the_client_is_tried_in_its_order(bare: Serving) -> None:
    under_test = bare.under_test
    match = Match(aliases=frozenset({"no"}))
    route(under_test, Step(targets=OWN), match=match)
    change_small(under_test, output_tokens_max=5)
    async with named_node(under_test, bare.model, "l"):
        answer = await bare.chat(model=SMALL, models=[SMALL, MODEL])
        assert answer.status_code == 200, answer.text
        assert text_of(answer) == "abcdab" and answer.json()["model"] == MODEL
        assert answer.headers["x-sluice-fallback"] == f"2:{MODEL}"
        body = {"model": SMALL, "models": [MODEL], "input": "abcd", "max_output_tokens": 3}
        response = await bare.client.post("/v1/responses", json=body)
        assert response.json()["model"] == MODEL
        messages = [{"role": "user", "content": "abcd"}]
        body = {"model": SMALL, "models": [MODEL], "messages": messages, "max_tokens": 3}
        message = await bare.client.post("/v1/messages", json=body)
        assert message.json()["model"] == MODEL
        completed = await bare.complete(model=SMALL, models=[MODEL], max_tokens=3)
        assert completed.json()["model"] == MODEL
        await under_test.at_rest()
    receipt = json.loads(under_test.recorder.records[0].receipt)
    assert (receipt["asked"], [step["reason"] for step in receipt["steps"]]) == (
        SMALL, ["max_tokens", "served"],
    )  # fmt: skip


async def test_a_list_leads_on_from_a_model_whose_nodes_cannot_do_it(bare: Serving) -> None:
    under_test = bare.under_test
    route(under_test, Step(targets=OWN), match=Match(aliases=frozenset({"no"})))
    form = {"type": "json_object"}
    async with (
        named_node(under_test, bare.model, "s", name=SMALL),
        hand_node(under_test, bare.model, capabilities=["grammar"]) as node,
    ):
        asked = asyncio.create_task(bare.chat(model=SMALL, models=[MODEL], response_format=form))
        await node.answer(await node.job(), "{}", finish="stop")
        answer = await asked
        await under_test.at_rest()
        assert answer.headers["x-sluice-fallback"] == f"2:{MODEL}"
        alone = await bare.chat(model=SMALL, response_format=form)
        assert alone.json()["error"]["code"] == "unsupported_parameter"


@pytest.mark.parametrize(
    ("models", "status", "param"),
    [
        (["small"], 403, "models[0]"),
        ([MODEL, "nowhere"], 404, "models[1]"),
        ([MODEL] * 5, 400, "models"),
        ([1], 400, "models[0]"),
    ],
)
async def test_a_list_names_what_the_key_may_use_and_is_bounded(
    serving: Serving, models: list[Any], status: int, param: str
) -> None:
    route(serving.under_test, Step(targets=OWN), match=Match(aliases=frozenset({"no"})))
    allowed = frozenset({MODEL, "nowhere"})
    serving.under_test.keys.keys[KEY] = make_key(models=allowed)
    answer = await serving.chat(models=models)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}
