"""Ratings of answers: what is kept, whose, what is refused, and what follows for size classes."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec
import pytest

from controlplane.gateway.tasks import feedback
from controlplane.kernel.ids import new_request_id, public_request
from controlplane.kernel.receipt import Receipt, SizeChoice
from tests.gateway.s1_admission.test_key_scopes import become
from tests.support.described import answer_shape, check_described
from tests.support.ports import make_key
from tests.support.serving import Serving

DIGEST = bytes(range(16))
SIZE = SizeChoice(chosen="small", served="small", conversation=DIGEST.hex())


def recorded(serving: Serving) -> bytes:
    """A request of the key's project."""
    request = new_request_id()
    receipt = msgspec.json.encode(Receipt(size=SIZE))
    serving.under_test.contents.rateable[make_key().project, request] = receipt
    return request


async def rate(serving: Serving, request: bytes | str, **body: Any) -> httpx2.Response:
    named = request if isinstance(request, str) else public_request(request)
    return await serving.client.post(f"/v1/requests/{named}/feedback", json=body)


async def test_the_last_word_stands_and_saying_it_again_changes_nothing(serving: Serving) -> None:
    request, state = recorded(serving), serving.under_test.world
    place = make_key().project, request
    down = await rate(serving, request, rating="down", comment="Wrong city.")
    assert down.status_code == 200, down.text
    told = {"id": public_request(request), "object": "feedback", "rating": "down"}
    assert down.json() == {**told, "comment": "Wrong city."}
    check_described(down.json(), answer_shape("/v1/requests/{request}/feedback"))
    assert serving.under_test.contents.ratings[place] == (-1, "Wrong city.")
    assert state.sizes.served(DIGEST) == "small"
    state.sizes.forget(DIGEST)
    assert (await rate(serving, request, rating="down")).status_code == 200
    assert state.sizes.served(DIGEST) is None
    assert (await rate(serving, request, rating="up")).json()["rating"] == "up"
    await rate(serving, request, rating="down")
    assert state.sizes.served(DIGEST) == "small"
    await rate(serving, request, rating="up")
    assert state.sizes.served(DIGEST) is None
    assert not serving.under_test.ledger.held and not serving.under_test.recorder.records


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "rating"),
        ({"rating": "sideways"}, "rating"),
        ({"rating": "up", "comment": "a" * 513}, "comment"),
        ({"rating": "up", "comment": 1}, "comment"),
    ],
)
async def test_what_is_wrong_is_named(serving: Serving, body: dict[str, Any], param: str) -> None:
    answer = await rate(serving, recorded(serving), **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_requests_of_others_and_unknown_ones_are_not_found(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feedback, "PAUSE_S", 0.0)
    theirs = new_request_id()
    serving.under_test.contents.rateable["f" * 32, theirs] = b"{}"
    for each in (theirs, new_request_id(), "req_1"):
        answer = await rate(serving, each, rating="up")
        told = answer.json()["error"]
        assert (answer.status_code, told["code"]) == (404, "request_not_found")
    serving.under_test.contents.away = True
    away = await rate(serving, theirs, rating="up")
    assert (away.status_code, away.json()["error"]["code"]) == (503, "contents_unavailable")


async def test_keys_that_only_read_cannot_rate_and_others_of_any_endpoint_can(
    serving: Serving,
) -> None:
    request = recorded(serving)
    become(serving, endpoints=frozenset({"models", "key"}))
    refused = await rate(serving, request, rating="up")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "endpoint_not_allowed")
    become(serving, endpoints=frozenset({"embeddings", "key"}))
    assert (await rate(serving, request, rating="up")).status_code == 200
    assert (await serving.client.get("/v1/requests/req_1/feedback")).status_code == 405
