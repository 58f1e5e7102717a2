"""What a key is not for is refused with 403 before any body is read; the rest is served."""

from __future__ import annotations

import pytest

from controlplane.gateway.places import Places
from controlplane.kernel.keys.scopes import READ_ENDPOINTS
from tests.support.fleet import MODEL
from tests.support.ports import KEY, make_key
from tests.support.serving import Serving

PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
}
HERE, ELSEWHERE = "127.0.0.0/8", "203.0.113.0/24"


def become(serving: Serving, **changes: object) -> None:
    """The key in hand, changed."""
    serving.under_test.keys.keys[KEY] = make_key(**changes)


@pytest.mark.parametrize("endpoint", PATHS)
async def test_other_endpoints_are_refused_unread(serving: Serving, endpoint: str) -> None:
    become(serving, endpoints=frozenset({*PATHS, "models"} - {endpoint}))
    answer = await serving.client.post(PATHS[endpoint], content=b"no JSON at all")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (403, "endpoint_not_allowed")
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "permission_error" and f"'{endpoint}'" in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    (record,) = serving.under_test.recorder.records
    assert (record.status, record.error_code) == (403, "endpoint_not_allowed")


async def test_a_key_for_one_endpoint_serves_there(serving: Serving) -> None:
    become(serving, endpoints=frozenset({"chat"}))
    assert (await serving.chat()).status_code == 200
    assert (await serving.complete()).status_code == 403
    assert (await serving.client.get("/v1/models")).status_code == 403


async def test_a_read_only_key_only_reads(serving: Serving) -> None:
    become(serving, endpoints=frozenset(READ_ENDPOINTS))
    assert (await serving.client.get("/v1/models")).status_code == 200
    assert (await serving.client.get(f"/v1/models/{MODEL}")).status_code == 200
    for path in PATHS.values():
        assert (await serving.client.post(path, json={})).status_code == 403
    assert serving.under_test.ledger.held == {}


async def test_a_key_of_no_endpoint_does_nothing(serving: Serving) -> None:
    become(serving, endpoints=frozenset())
    assert (await serving.chat()).status_code == 403
    assert (await serving.client.get("/v1/models")).status_code == 403


async def test_models_of_others_are_refused_whether_there_are_any(serving: Serving) -> None:
    become(serving, models=frozenset({"another"}))
    for model in (MODEL, "nowhere"):
        answer = await serving.chat(model=model)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (403, "model_not_allowed")
        assert error["param"] == "model"
    assert (await serving.client.get("/v1/models")).json()["data"] == []


@pytest.mark.parametrize(
    ("networks", "status"),
    [((HERE,), 200), ((ELSEWHERE, HERE), 200), ((ELSEWHERE,), 403), (("127.0.0.1/32",), 200)],
)
async def test_the_sockets_address_decides(
    serving: Serving, networks: tuple[str, ...], status: int
) -> None:
    become(serving, networks=networks)
    # No proxy is trusted here, so whatever a client says of itself is nothing.
    claims = {"x-forwarded-for": "203.0.113.7", "x-real-ip": "203.0.113.7", "forwarded": "for=1"}
    serving.client.headers.update(claims)
    answer = await serving.chat()
    assert answer.status_code == status
    assert (await serving.client.get("/v1/models")).status_code == status
    if status != 200:
        assert answer.json()["error"]["code"] == "ip_not_allowed"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ([("x-forwarded-for", "203.0.113.7")], 200),
        ([("x-forwarded-for", "203.0.113.7, 198.51.100.1")], 403),
        # A proxy that adds a header of its own, after the one that the client made up.
        ([("x-forwarded-for", "203.0.113.7"), ("x-forwarded-for", "198.51.100.1")], 403),
        ([("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "203.0.113.7")], 200),
        ([], 403),
    ],
)
async def test_behind_a_trusted_proxy_its_last_word_decides(
    serving: Serving, said: list[tuple[str, str]], status: int
) -> None:
    serving.under_test.world.places = Places(trusted_proxies=("127.0.0.1",))
    become(serving, networks=(ELSEWHERE,))
    bearer = [("authorization", f"Bearer {KEY}")]
    answer = await serving.client.get("/v1/models", headers=[*bearer, *said])
    assert answer.status_code == status
