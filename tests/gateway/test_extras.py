"""Paths that need no node: tokens, moderations, the list of models, and what is not offered."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import msgspec
import pytest

from controlplane.gateway.ports import Allowance, Room
from controlplane.gateway.tasks import extras
from controlplane.gateway.tasks.extras import NOT_OFFERED
from tests.gateway.s1_admission.test_key_scopes import become
from tests.support.described import answer_shape, check_described
from tests.support.fleet import MODEL
from tests.support.serving import Serving
from tests.support.waiting import until

MESSAGES = [{"role": "user", "content": "abcd"}]


async def post(serving: Serving, path: str, **body: Any) -> httpx2.Response:
    return await serving.client.post(path, json=body)


async def tokenize(serving: Serving, **body: Any) -> dict[str, Any]:
    answer = await post(serving, "/v1/tokenize", **{"model": MODEL, **body})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    check_described(told, answer_shape("/v1/tokenize"))
    assert told["count"] == len(told["tokens"])
    return told


async def test_a_prompt_has_the_tokens_that_it_is_charged_for(serving: Serving) -> None:
    chat = await tokenize(serving, messages=MESSAGES)
    assert chat["count"] == (await serving.chat()).json()["usage"]["prompt_tokens"]
    text = await tokenize(serving, prompt="abcd")
    assert text["count"] == (await serving.complete()).json()["usage"]["prompt_tokens"]
    assert text["max_model_len"] > 0 and "token_strs" not in text


async def test_token_strings_and_the_way_back(serving: Serving) -> None:
    told = await tokenize(serving, prompt="abcd", return_token_strs=True, add_special_tokens=False)
    assert "".join(told["token_strs"]) == "abcd"
    for path in ("/v1/detokenize", "/detokenize"):
        answer = await post(serving, path, model=MODEL, tokens=told["tokens"])
        assert answer.json() == {"prompt": "abcd"}
    assert (await post(serving, "/v1/detokenize", model=MODEL, tokens=[])).json()["prompt"] == ""


async def test_nothing_of_it_is_charged_or_sent_to_a_node(serving: Serving) -> None:
    await tokenize(serving, prompt="abcd")
    await post(serving, "/v1/moderations", input="a")
    under_test = serving.under_test
    assert not under_test.ledger.held and not under_test.recorder.records
    assert under_test.limiter.taken == [0, 0] and under_test.limiter.under_way == 0


async def test_a_long_text_is_encoded_whole(serving: Serving) -> None:
    window = (await tokenize(serving, prompt="a"))["max_model_len"]
    long = "abcd" * (window // 8)
    assert (await tokenize(serving, prompt=long, add_special_tokens=False))["count"] == len(long)
    answer = await post(serving, "/v1/tokenize", model=MODEL, prompt="a" * 4_000_000)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "param"),
    [
        ("/v1/tokenize", {"model": MODEL}, 400, None, "prompt"),
        (
            "/v1/tokenize",
            {"model": MODEL, "prompt": "a", "messages": MESSAGES},
            400,
            None,
            "prompt",
        ),
        ("/v1/tokenize", {"prompt": "a"}, 400, "missing_required_parameter", "model"),
        ("/v1/tokenize", {"model": "none", "prompt": "a"}, 404, "model_not_found", "model"),
        ("/v1/detokenize", {"model": MODEL, "tokens": [-1]}, 400, None, "tokens"),
        ("/v1/detokenize", {"model": MODEL, "tokens": [10**6]}, 400, None, "tokens"),
        ("/v1/detokenize", {"model": MODEL, "tokens": ["a"]}, 400, None, "tokens[0]"),
        ("/v1/moderations", {"input": []}, 400, None, "input"),
        ("/v1/moderations", {"input": ["a"] * 33}, 400, None, "input"),
        ("/v1/moderations", {"input": "a" * 16_385}, 400, None, "input"),
        ("/v1/moderations", {}, 400, "missing_required_parameter", "input"),
    ],
)
async def test_refusals_name_the_field(
    serving: Serving, path: str, body: dict[str, Any], status: int, code: str | None, param: str
) -> None:
    answer = await post(serving, path, **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param), error


async def test_keys_are_held_to_models_and_endpoints(serving: Serving) -> None:
    become(serving, endpoints=frozenset({"tokenize"}))
    assert (await post(serving, "/v1/tokenize", model=MODEL, prompt="a")).status_code == 200
    assert (await post(serving, "/v1/moderations", input="a")).status_code == 403
    become(serving, models=frozenset({"other"}))
    answer = await post(serving, "/v1/tokenize", model=MODEL, prompt="a")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "model_not_allowed")
    answer = await serving.client.post("/v1/moderations", headers={"authorization": "Bearer no"})
    assert answer.status_code == 401


async def test_requests_are_counted(serving: Serving) -> None:
    room = Room("requests", "key", 60, 59, 1.0)
    serving.under_test.limiter.answer = Allowance(allowed=True, rooms=(room,))
    answer = await post(serving, "/v1/tokenize", model=MODEL, prompt="a")
    assert answer.headers["x-ratelimit-remaining-requests"] == "59"
    refused = Allowance(allowed=False, rooms=(room,), refused_by=room, retry_after_s=1.0)
    serving.under_test.limiter.answer = refused
    assert (await post(serving, "/v1/moderations", input="a")).status_code == 429


async def test_without_a_node_nobody_has_the_tokenizer(bare: Serving) -> None:
    answer = await post(bare, "/v1/tokenize", model=MODEL, prompt="a")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_node_available")


async def test_texts_are_judged_by_their_worst_passage(bare: Serving) -> None:
    calm = "a quiet word or two " * 20
    answer = await post(bare, "/v1/moderations", input=[calm, f"{calm} idiot {calm}"])
    told = answer.json()
    check_described(told, answer_shape("/v1/moderations"))
    assert [each["flagged"] for each in told["results"]] == [False, True]
    worst = told["results"][1]
    assert [name for name, found in worst["categories"].items() if found] == ["harassment"]
    assert worst["category_scores"]["harassment"] == 1.0
    assert sum(worst["category_scores"].values()) == 1.0
    asked = bare.under_test.safety.asked
    assert max(map(len, asked)) <= 120 and all("idiot" in each for each in asked if "idi" in each)


async def test_parts_are_one_text(bare: Serving) -> None:
    parts = [{"type": "text", "text": "fine"}, {"type": "text", "text": "idiot"}]
    (result,) = (await post(bare, "/v1/moderations", input=parts)).json()["results"]
    assert result["flagged"]
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    assert (await post(bare, "/v1/moderations", input=[image])).status_code == 400


async def test_a_classifier_that_starts_is_waited_for(bare: Serving) -> None:
    bare.under_test.safety.away = True
    asking = asyncio.create_task(post(bare, "/v1/moderations", input="a"))
    await until(lambda: bare.under_test._gateway.serving == 1)
    bare.under_test.safety.away = False
    assert (await asking).status_code == 200


async def test_a_classifier_that_stays_away_is_told(
    bare: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "ANSWER_S_MAX", 0.05)
    bare.under_test.safety.away = True
    answer = await post(bare, "/v1/moderations", input="a")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "classifier_unavailable")
    assert answer.headers["retry-after"]


async def test_too_many_moderations_at_once_are_refused(bare: Serving) -> None:
    bare.under_test.world.moderations = asyncio.Semaphore(0)
    answer = await post(bare, "/v1/moderations", input="a")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_is_overloaded")


async def test_models_tell_what_they_can_and_cost(serving: Serving) -> None:
    (model,) = (await serving.client.get("/v1/models")).json()["data"]
    assert set(model["abilities"]) <= {"tools", "reasoning", "structured_output"}
    assert model["context_window"] and model["max_output_tokens"]
    price = serving.under_test.keys.current.models[MODEL].price
    assert model["pricing"]["version"] == price.version
    assert float(model["pricing"]["input"]) == price.input_pico / 1e6
    assert float(model["pricing"]["output"]) == price.output_pico / 1e6
    one = (await serving.client.get(f"/v1/models/{MODEL}")).json()
    assert one == model


async def test_anthropics_clients_get_their_shape(serving: Serving) -> None:
    headers = {"anthropic-version": "2023-06-01"}
    listed = (await serving.client.get("/v1/models", headers=headers)).json()
    (model,) = listed["data"]
    assert model == {
        "type": "model", "id": MODEL, "display_name": MODEL, "created_at": model["created_at"],
    }  # fmt: skip
    assert model["created_at"].endswith("Z")
    assert listed == {"data": [model], "has_more": False, "first_id": MODEL, "last_id": MODEL}
    assert (await serving.client.get(f"/v1/models/{MODEL}", headers=headers)).json() == model
    now = serving.under_test.keys.current
    serving.under_test.keys.current = msgspec.structs.replace(now, models={})
    empty = (await serving.client.get("/v1/models", headers=headers)).json()
    assert empty == {"data": [], "has_more": False, "first_id": None, "last_id": None}


@pytest.mark.parametrize("path", NOT_OFFERED)
async def test_what_is_not_offered_is_said(bare: Serving, path: str) -> None:
    answer = await post(bare, f"{path}/x")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "unsupported_endpoint")
    assert path in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert (await post(bare, "/v1/nothing")).json()["error"]["code"] == "unknown_url"
