"""Bodies of megabytes: what they may hold, whose they are, and that streams go on beside them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.openai import chat, completions, embeddings, parse
from controlplane.gateway.openai.completions import PROMPT_TOKENS_MAX
from controlplane.gateway.openai.parse import (
    CONTAINERS_MAX,
    DEPTH_MAX,
    STRINGS_MAX,
    VALUES_MAX,
    nests_too_deep,
)
from controlplane.gateway.ports import Allowance, Room
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.s1_admission.body import BODY_BYTES_MAX, SMALL_BYTES
from controlplane.gateway.s1_admission.helpers import offload
from controlplane.gateway.s1_admission.helpers.offload import LARGE_BYTES, LARGE_VALUES, Offload
from controlplane.kernel.shares import OWNERS_MIN, lent_of
from inference.contract.frames import INPUTS_TOKENS_MAX
from tests.gateway.openai.test_bodies import check_error
from tests.support.fleet import MODEL
from tests.support.ports import KEY, ORGANIZATION, make_key
from tests.support.raw import told
from tests.support.serving import CHAT_PATH, Serving
from tests.support.waiting import until

TEXT = "a" * LARGE_BYTES
CHUNKED = "Transfer-Encoding: chunked"


def body(**fields: Any) -> bytes:
    said = {"model": MODEL, "messages": [{"role": "user", "content": "a"}]}
    return json.dumps({**said, **fields}).encode()


def parts(count: int, text: str) -> bytes:
    each = [{"type": "text", "text": text}] * 16
    return body(messages=[{"role": "user", "content": each}] * (count // 16))


def called(arguments: str) -> bytes:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return body(messages=[{"role": "assistant", "tool_calls": [call]}])


@pytest.mark.parametrize(
    ("data", "param"),
    [
        (lambda: parts(CONTAINERS_MAX, "a" * 20), None),
        (lambda: body(stop=TEXT, metadata=[[]] * CONTAINERS_MAX), None),
        (lambda: body(logit_bias={str(number): 1 for number in range(STRINGS_MAX)}), None),
        (lambda: body(metadata=[1] * VALUES_MAX), None),
        (
            lambda: called(json.dumps({"a": [[]] * CONTAINERS_MAX, "b": TEXT})),
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
    ids=["parts", "lists", "names", "numbers", "arguments"],
)
def test_too_many_things_are_refused_before_they_are_made(
    data: Callable[[], bytes], param: str | None
) -> None:
    made = data()
    with pytest.raises(Refusal) as caught:
        chat.parse(made)
    assert (caught.value.status, caught.value.code) == (400, "too_many_values")
    assert caught.value.param == param


def prompt_of(ids: int, field: str = "prompt") -> bytes:
    given = "[" + ",".join(["7"] * ids) + "]"
    return f'{{"model":"{MODEL}","{field}":{given}}}'.encode()


class Unused:
    """A decoder that must not be reached."""

    @staticmethod
    def decode(data: bytes) -> NoReturn:
        raise AssertionError(f"{len(data)} bytes were decoded")


@pytest.mark.parametrize(
    ("shape", "field", "ids_max"),
    [(embeddings, "input", INPUTS_TOKENS_MAX), (completions, "prompt", PROMPT_TOKENS_MAX)],
)
def test_more_token_ids_than_any_model_takes_are_refused_before_they_are_made(
    shape: ModuleType, field: str, ids_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape, "_decoder", Unused)
    with pytest.raises(Refusal) as caught:
        shape.parse(prompt_of(ids_max + VALUES_MAX + 1, field))
    assert caught.value.code == "too_many_values"


def test_as_many_token_ids_as_may_be_embedded_are_taken() -> None:
    inputs = embeddings.parse(prompt_of(INPUTS_TOKENS_MAX, "input")).inputs
    assert inputs is not None and len(inputs.tokens[0]) == INPUTS_TOKENS_MAX


def test_others_run_between_the_numbers_of_a_large_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser is in Python's hands at each, so that a thread that wants to run can."""
    assert parse._large_decoder.parse_int is parse._number
    read: list[str] = []
    monkeypatch.setattr(parse, "_large_decoder", json.JSONDecoder(parse_int=read.append))
    completions.parse(prompt_of(2 * LARGE_VALUES))
    assert read == ["7"] * 2 * LARGE_VALUES


@pytest.mark.parametrize("text", ['[{"\\' * LARGE_BYTES, '","' * LARGE_BYTES, "é[" * LARGE_BYTES])
def test_brackets_and_quotes_inside_a_text_do_not_count(text: str) -> None:
    assert chat.parse(body(messages=[{"role": "user", "content": text}])).turns[0].content == text


VALUES = st.recursive(
    st.text(alphabet='[]{}"\\a\u00e9', max_size=6) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (1 if isinstance(value, dict | list) else 0) + max(map(depth, inner), default=0)


@given(VALUES, st.integers(0, DEPTH_MAX + 2), st.booleans())
def test_depth_is_that_of_brackets_outside_texts(value: Any, more: int, ascii_only: bool) -> None:
    for _ in range(more):
        value = [value]
    text = json.dumps([value, [[]] * DEPTH_MAX], ensure_ascii=ascii_only)
    assert nests_too_deep(text) == (max(depth(value) + 1, 3) > DEPTH_MAX)


async def test_a_large_body_is_read_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, serving: Serving
) -> None:
    threads = []
    parse = chat._decoder.decode

    class Decoder:
        @staticmethod
        def decode(data: bytes) -> Any:
            threads.append(threading.current_thread() is threading.main_thread())
            return parse(data)

    monkeypatch.setattr(chat, "_decoder", Decoder)
    for text in ("a", "a" * (LARGE_BYTES + 1), "a," * LARGE_VALUES):
        await serving.chat(messages=[{"role": "user", "content": text}])
    assert threads == [True, False, False]


async def test_a_key_without_requests_has_no_large_body_read(serving: Serving) -> None:
    room = Room("requests", "key", 60, 0, 60.0)
    serving.under_test.limiter.answer = Allowance(allowed=False, rooms=(room,), refused_by=room)
    answer = await serving.client.post(CHAT_PATH, content=b"no JSON" * LARGE_BYTES)
    assert (answer.status_code, check_error(answer)["code"]) == (429, "rate_limit_exceeded")
    assert answer.headers["retry-after"] == "1"
    assert serving.under_test.limiter.taken == []


async def test_a_key_without_requests_has_no_body_of_many_values_read(serving: Serving) -> None:
    room = Room("requests", "key", 60, 0, 60.0)
    limiter = serving.under_test.limiter
    limiter.answer = Allowance(allowed=False, rooms=(room,), refused_by=room)
    answer = await serving.client.post(CHAT_PATH, content=b"," * (LARGE_VALUES + 1))
    assert (answer.status_code, check_error(answer)["code"]) == (429, "rate_limit_exceeded")
    assert limiter.taken == []


async def test_a_large_body_that_nobody_read_counts_as_none(
    monkeypatch: pytest.MonkeyPatch, serving: Serving
) -> None:
    under_test = serving.under_test
    large = [{"role": "user", "content": TEXT}]
    for most, expected in ((0, 503), (2, 429)):
        monkeypatch.setattr(offload, "WAITING_MAX", most)
        go_on = threading.Event()
        waiting = [
            asyncio.create_task(under_test.world.offload.run(go_on.wait, 5.0, tenant=ORGANIZATION))
            for _ in range(lent_of(most))
        ]
        await asyncio.sleep(0)
        refused = await serving.chat(messages=large)
        go_on.set()
        await asyncio.gather(*waiting)
        assert (refused.status_code, under_test.limiter.taken) == (expected, [])


async def test_a_large_body_that_is_refused_counts_as_a_request(serving: Serving) -> None:
    limiter = serving.under_test.limiter
    for content, taken in ((b"no JSON", []), (b"no JSON" * LARGE_BYTES, [0])):
        answer = await serving.client.post(CHAT_PATH, content=content)
        assert (answer.status_code, limiter.taken) == (400, taken)
    assert limiter.under_way == 0
    assert serving.under_test.world.bodies.used == 0


async def test_large_bodies_share_the_memory_they_may_take(serving: Serving) -> None:
    bodies = serving.under_test.world.bodies
    bodies.bytes_max = OWNERS_MIN * LARGE_BYTES
    others = [bodies.portion(f"another {number}") for number in range(OWNERS_MIN)]
    assert all(other.grow(bodies.small_bytes + LARGE_BYTES) for other in others)
    large = [{"role": "user", "content": "a" * bodies.small_bytes}]
    refused, small = await asyncio.gather(serving.chat(messages=large), serving.chat())
    assert (refused.status_code, small.status_code) == (503, 200)
    assert check_error(refused)["code"] == "server_is_overloaded"
    assert refused.headers["retry-after"] == "1"
    for other in others:
        other.free()
    assert bodies.used == 0


def head(framing: str, key: str = KEY) -> bytes:
    """Of a chat whose body comes later, on a connection of its own."""
    lines = (f"POST {CHAT_PATH} HTTP/1.1", "Host: a", f"Authorization: Bearer {key}")
    return "\r\n".join((*lines, "Connection: close", framing, "", "")).encode()


async def test_one_tenant_s_slow_bodies_leave_room_for_another_s(serving: Serving) -> None:
    under_test = serving.under_test
    bodies = under_test.world.bodies
    bodies.bytes_max = OWNERS_MIN * LARGE_BYTES
    under_test.keys.keys["sk_bob"] = make_key(organization="c" * 32, id="l" * 32)
    large = body() + b" " * (bodies.small_bytes + 1)
    _, slow = await asyncio.open_connection("127.0.0.1", under_test.port)
    with contextlib.closing(slow):
        slow.write(head(f"Content-Length: {8 * LARGE_BYTES}"))
        half = lent_of(bodies.bytes_max)
        slow.write(b" " * (bodies.small_bytes + half))
        await until(lambda: bodies.used == half)
        refused, small = await asyncio.gather(
            serving.client.post(CHAT_PATH, content=large), serving.chat()
        )
        assert (refused.status_code, small.status_code) == (429, 200)
        assert check_error(refused)["code"] == "rate_limit_exceeded"
        assert refused.headers["retry-after"] == "1"
        bob = head(f"Content-Length: {len(large)}", key="sk_bob")
        assert [answer.status for answer in await told(under_test.port, bob, large)] == [200]
    await until(lambda: not bodies.used)


@pytest.mark.parametrize("framing", [f"Content-Length: {BODY_BYTES_MAX}", CHUNKED])
async def test_a_key_without_requests_is_told_before_its_large_body_has_come(
    serving: Serving, framing: str
) -> None:
    room = Room("requests", "key", 60, 0, 60.0)
    serving.under_test.limiter.answer = Allowance(allowed=False, rooms=(room,), refused_by=room)
    chunk = b"%x\r\n%s\r\n" % (SMALL_BYTES, b" " * SMALL_BYTES)
    pieces = [chunk] * 3 if framing == CHUNKED else []
    (answer,) = await told(serving.under_test.port, head(framing), *pieces)
    assert (answer.status, answer.error["code"]) == (429, "rate_limit_exceeded")


async def test_a_body_that_does_not_end_is_cut(serving: Serving) -> None:
    serving.under_test.world.body_s = 0.2
    pieces = [head("Content-Length: 50"), *[b"{"] * 20]
    (answer,) = await told(serving.under_test.port, *pieces, pause_s=0.05)
    assert (answer.status, answer.error["code"]) == (408, "request_timeout")
    assert answer.headers["connection"] == "close"


async def test_only_so_many_large_bodies_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "WAITING_MAX", 2)
    go_on, made = threading.Event(), Offload()
    waiting = [
        asyncio.create_task(made.run(go_on.wait, 5.0, tenant=tenant)) for tenant in ("a", "b")
    ]
    await asyncio.sleep(0)
    for tenant, refused in (
        ("a", (429, "rate_limit_exceeded")),
        ("c", (503, "server_is_overloaded")),
    ):
        with pytest.raises(Refusal) as caught:
            await made.run(go_on.wait, 5.0, tenant=tenant)
        assert (caught.value.status, caught.value.code) == refused
    go_on.set()
    assert await asyncio.gather(*waiting) == [True, True]
    assert await made.run(str, 1, tenant="a") == "1"
    made.close()


async def test_one_tenant_s_large_bodies_take_half_while_nobody_else_wants_more() -> None:
    go_on, made = threading.Event(), Offload()

    async def admitted(tenant: str) -> int:
        """How many of this tenant's wait until one is refused."""
        while True:
            task = asyncio.create_task(made.run(go_on.wait, 5.0, tenant=tenant))
            await asyncio.sleep(0)
            if task.done():
                assert isinstance(refusal := task.exception(), Refusal) and refusal.status == 429
                return sum(each == tenant for each, _ in waiting)
            waiting.append((tenant, task))

    waiting: list[tuple[str, asyncio.Task[bool]]] = []
    found = [await admitted(tenant) for tenant in "abc"]
    go_on.set()
    assert found == [16, 8, 8]
    await asyncio.gather(*(task for _, task in waiting))
    made.close()
