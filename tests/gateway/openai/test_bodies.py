"""Bodies that are no request: each is a 400 with four keys, never a 5xx, and costs no memory."""

from __future__ import annotations

import asyncio
import json
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.gateway.openai import chat, completions, embeddings
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.s1_admission.body import BODY_BYTES_MAX
from controlplane.gateway.s1_admission.helpers.offload import LARGE_BYTES
from inference.contract.frames import ASSET_PART_BYTES
from tests.support.fleet import MODEL, echo_node
from tests.support.ports import KEY
from tests.support.serving import CHAT_PATH, Serving

HUGE_BYTES = 100 * 1024 * 1024
GOOD = b'{"model":"m","messages":[{"role":"user","content":"a"}]'
BLANKS = b" " * LARGE_BYTES
LARGE_TOOL = b',"tools":[{"type":"function","function":{"name":"f","parameters":{"a":%b%b}}}]%b}'
LARGE_SCHEMA = b'{"model":"m","prompt":"a","structured_outputs":{"json":{"a":%b%b}}%b}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)
FIELD = st.sampled_from(
    ["model", "messages", "prompt", "input", "stop", "n", "stream", "logit_bias", "metadata",
     "max_tokens", "stream_options", "temperature", "seed", "logprobs", "response_format", "tools",
     "tool_choice", "parallel_tool_calls", "structured_outputs"]
)  # fmt: skip
BROKEN = {
    "empty": b"",
    "cut off": b'{"model":',
    "a list": b"[]",
    "a text": b'"hello"',
    "null": b"null",
    "NaN": GOOD + b',"temperature":NaN}',
    "Infinity": GOOD + b',"temperature":-Infinity}',
    "overflow": GOOD + b',"temperature":1e400}',
    "endless integer": GOOD + b',"seed":' + b"9" * 10_000 + b"}",
    "trailing text": GOOD + b"} and more",
    "trailing comma": GOOD + b",}",
    "single quotes": b"{'model':'m'}",
    "comment": GOOD + b"/* */}",
    "invalid UTF-8": b'{"model":"\xff\xfe"}',
    "overlong UTF-8": b'{"model":"\xc0\xaf"}',
    "UTF-16": GOOD.decode().encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + GOOD + b"}",
    "lone surrogate": b'{"model":"\\ud800","messages":[]}',
    "lone surrogate in a key": b'{"\\ud800":1}',
    "surrogate given twice": b'{"\\udc00":1,"\\udc00":2}',
    "field given twice": b'{"model":"m","model":"x"}',
    "inner field given twice": b'{"model":"m","messages":[{"role":"user","role":"user"}]}',
    "deep lists": b"[" * 200_000,
    "deep objects": b'{"a":' * 200_000,
    "deep and given twice": b"[" * 900 + b'{"a":1,"a":2}' + b"]" * 900,
    "deep inside": b'{"model":"m","messages":' + b"[" * 33 + b"]" * 33 + b"}",
    "deep inside a large tool": GOOD + LARGE_TOOL % (b"[" * 5_000, b"]" * 5_000, BLANKS),
    "deep inside a large schema": LARGE_SCHEMA % (b"[" * 5_000, b"]" * 5_000, BLANKS),
    "control character": b'{"model":"a\nb"}',
}


def refusal_of(data: bytes) -> Refusal:
    """The refusal that all three shapes give."""
    for parse in (completions.parse, embeddings.parse, chat.parse):
        with pytest.raises(Refusal) as caught:
            parse(data)
        assert caught.value.status == 400
        json.dumps(caught.value.body).encode("utf-8")
    return caught.value


def check_error(answer: httpx2.Response) -> dict[str, Any]:
    """Four keys, always."""
    error: dict[str, Any] = answer.json()["error"]
    assert list(answer.json()) == ["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] and error["type"]
    assert answer.headers["x-request-id"]
    return error


@pytest.mark.parametrize("name", BROKEN)
def test_broken_bodies_are_refused_in_words(name: str) -> None:
    refusal = refusal_of(BROKEN[name])
    assert refusal.message.endswith(".") and "sys." not in refusal.message
    refusal.message.encode()


def test_what_is_named_when_a_field_comes_twice() -> None:
    refusal = refusal_of(b'{"model":"m","stop":"a","stop":"b"}')
    assert (refusal.param, refusal.message) == ("stop", "The field 'stop' is duplicated.")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"a":1,"b":{"c":[0,{"d":1,"e":2,"d":3}]}}', "b.c[1].d"),
        (b'{"messages":[{"role":"user"},{"role":"user","role":"user"}]}', "messages[1].role"),
        (b'{"a":{"b":1,"b":2},"a":3}', "a"),
        (b'{"a":[[{"b":1,"b":2}]]}', "a[0][0].b"),
        (b'{"":{"":1,"":2}}', "."),
    ],
)
def test_a_field_given_twice_is_named_by_its_path(body: bytes, path: str) -> None:
    refusal = refusal_of(body)
    assert (refusal.param, refusal.message) == (path, f"The field '{path}' is duplicated.")


def test_brackets_inside_text_are_no_nesting() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": '[{"' * 500}]}
    assert chat.parse(json.dumps(body).encode()).turns[0].content.startswith('[{"')


def test_deep_bodies_are_refused_quickly() -> None:
    began = time.monotonic()
    refusal_of(b"[" * BODY_BYTES_MAX)
    assert time.monotonic() - began < 10


@given(st.binary(max_size=60))
def test_any_bytes_are_an_ask_or_a_refusal(data: bytes) -> None:
    refusal_of(data)


@given(st.dictionaries(FIELD | st.text(max_size=5), JSON, max_size=6))
def test_any_object_is_an_ask_or_a_refusal(body: dict[str, Any]) -> None:
    for parse in (chat.parse, completions.parse, embeddings.parse):
        try:
            parse(json.dumps({"model": "m", **body}).encode())
        except Refusal as refusal:
            assert refusal.status == 400
            json.dumps(refusal.body, ensure_ascii=False).encode()


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(body=st.dictionaries(FIELD, JSON, max_size=5), prompt=st.text(max_size=12))
def test_no_body_makes_the_server_fail(
    serving_sync: SyncServing, body: dict[str, Any], prompt: str
) -> None:
    messages = [{"role": "user", "content": prompt}]
    data = json.dumps({"model": MODEL, "messages": messages, "max_tokens": 2, **body}).encode()
    answer = serving_sync.post(data)
    assert answer.status_code < 500, answer.text
    if answer.status_code != 200:
        check_error(answer)


class SyncServing:
    """Requests from a synchronous test to a gateway on the fixture's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, serving: Serving) -> None:
        self._loop = loop
        self._serving = serving

    def post(self, data: bytes) -> httpx2.Response:
        """One request."""
        return self._loop.run_until_complete(self._serving.client.post(CHAT_PATH, content=data))


@pytest.fixture
async def patient(steady: Serving) -> AsyncIterator[Serving]:
    """With the times of production: the loop stands still while hypothesis thinks."""
    async with echo_node(steady.under_test.fleet_url, steady.model, tokens_per_s=500.0):
        await steady.under_test.served()
        yield steady
        await steady.under_test.at_rest()


@pytest.fixture
def serving_sync(patient: Serving) -> SyncServing:
    """The gateway, for a test that hypothesis calls."""
    return SyncServing(asyncio.get_event_loop_policy().get_event_loop(), patient)


async def huge(client: httpx2.AsyncClient, *, chunked: bool) -> httpx2.Response:
    """100 MB, read from nowhere."""

    async def body() -> AsyncIterator[bytes]:
        piece = b" " * ASSET_PART_BYTES
        for _ in range(HUGE_BYTES // len(piece)):
            yield piece

    headers = {} if chunked else {"content-length": str(HUGE_BYTES)}
    return await client.post(CHAT_PATH, content=body(), headers=headers)


@pytest.mark.parametrize("chunked", [False, True])
async def test_huge_body_is_refused_in_bounded_memory(serving: Serving, chunked: bool) -> None:
    tracemalloc.start()
    try:
        answer = await huge(serving.client, chunked=chunked)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.status_code == 413
    assert check_error(answer)["code"] == "request_too_large"
    assert peak < 4 * BODY_BYTES_MAX
    assert (await serving.chat()).status_code == 200


async def test_headers_over_their_bound(serving: Serving) -> None:
    answer = await serving.client.post(CHAT_PATH, json={}, headers={"x-long": "x" * 65 * 1024})
    assert answer.status_code == 431
    assert answer.json()["error"]["code"] == "headers_too_large"


@pytest.mark.parametrize("path", [CHAT_PATH, "/v1/completions", "/v1/embeddings", "/v1/preflight"])
async def test_bodies_of_other_types_are_refused_by_name(serving: Serving, path: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp"):
        answer = await serving.client.post(path, content=b"{}", headers={"content-type": kind})
        error = check_error(answer)
        assert (answer.status_code, error["code"]) == (415, "unsupported_content_type")
        assert kind in error["message"] and error["param"] == "content-type"
    for kind in ("application/json; charset=utf-8", "Application/JSON", ""):
        answer = await serving.client.post(path, content=b"{}", headers={"content-type": kind})
        assert answer.status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405),
        ("PUT", "/v1/completions", 405),
        ("POST", "/v1/models", 405),
        ("DELETE", "/v1/models/tiny", 405),
        ("POST", "/v1/nothing", 404),
        ("POST", "/v1/chat/completions/", 404),
        ("GET", "/v1/%F0%9F%98%80", 404),
        ("POST", "/v1/conversations", 404),
    ],
)
async def test_unknown_paths_and_methods(
    serving: Serving, method: str, path: str, status: int
) -> None:
    answer = await serving.client.request(method, path)
    assert answer.status_code == status
    error = check_error(answer)
    assert error["code"] in ("unknown_url", "method_not_allowed")
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("fields", "status", "param", "code"),
    [
        ({"messages": [{"role": "user", "content": ""}]}, 400, "messages", None),
        ({"logit_bias": {"256": 1}}, 400, "logit_bias", None),
        ({"logit_bias": {"-1": 1}}, 400, "logit_bias", None),
        ({"max_tokens": 1025}, 400, "max_tokens", None),
        ({"max_tokens": None, "max_completion_tokens": 1025}, 400, "max_completion_tokens", None),
        ({"model": "gpt-none"}, 404, "model", "model_not_found"),
        (
            {"messages": [{"role": "user", "content": "x" * 5000}]},
            400, "messages", "context_length_exceeded",
        ),
    ],
)  # fmt: skip
async def test_refused_by_what_the_model_is(
    serving: Serving, fields: dict[str, Any], status: int, param: str, code: str | None
) -> None:
    answer = await serving.chat(**fields)
    error = check_error(answer)
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code)


@pytest.mark.parametrize("prompt", ["", [256], [0, 1, 2**31 - 1]])
async def test_prompts_the_model_cannot_read(serving: Serving, prompt: object) -> None:
    answer = await serving.complete(prompt=prompt)
    assert (answer.status_code, check_error(answer)["param"]) == (400, "prompt")


async def test_a_model_that_generates_does_not_embed(serving: Serving) -> None:
    body = {"model": MODEL, "input": "a"}
    answer = await serving.client.post("/v1/embeddings", json=body)
    error = check_error(answer)
    assert (answer.status_code, error["code"], error["param"]) == (
        400, "model_task_mismatch", "model",
    )  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [{"authorization": ""}, {"authorization": "Basic x"}, {"authorization": "Bearer sk_wrong"}],
)
async def test_keys_that_open_nothing(serving: Serving, headers: dict[str, str]) -> None:
    answer = await serving.client.post(CHAT_PATH, json={}, headers=headers)
    assert (answer.status_code, check_error(answer)["code"]) == (401, "invalid_api_key")


async def test_key_in_the_header_of_anthropic_clients(serving: Serving) -> None:
    async with httpx2.AsyncClient(base_url=serving.under_test.url) as client:
        assert (await client.get("/v1/models")).status_code == 401
        answer = await client.get("/v1/models", headers={"x-api-key": KEY})
        assert answer.status_code == 200


async def test_client_that_stops_sending_its_body(serving: Serving) -> None:
    with socket.create_connection(("127.0.0.1", serving.under_test.port)) as client:
        head = f"POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        client.sendall(head.encode() + b"content-length: 100\r\n\r\n{")
        await asyncio.sleep(0.05)
    assert (await serving.chat()).status_code == 200
    assert not serving.under_test.ledger.open
