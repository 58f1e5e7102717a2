"""Pages and `/api` behind bounds: bodies, requests at once, and PostgreSQL that is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import pytest
from django.test import Client

from controlplane import bounded_pages, slow_readers
from controlplane.asgi import build
from controlplane.bounded_pages import (
    BODY_BYTES_MAX,
    SIGN_INS_AT_ONCE_MAX,
    SIGN_INS_WAITING_MAX,
    SMALL_BYTES,
    BoundedPages,
    Gate,
)
from controlplane.kernel.shares import OWNERS_MIN, lent_of
from tests.support.loopback import HOST
from tests.support.raw import Told, answers, serving_app, told
from tests.support.waiting import until
from tests.test_asgi import unreachable

MEBIBYTE = 1 << 20
ALICE, BOB = "127.0.0.2", "127.0.0.3"
SIGN_INS_MAX = SIGN_INS_AT_ONCE_MAX + SIGN_INS_WAITING_MAX
END = b"Host: localhost\r\nConnection: close\r\n"


class Held:
    """An application that reads its request and answers when it may; `most` were in it at once."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.now = self.most = 0
        self.sizes: list[int] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        assert not message["more_body"]
        self.sizes.append(len(message["body"]))
        self.now += 1
        self.most = max(self.most, self.now)
        await self.go_on.wait()
        self.now -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x"})


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
async def port(held: Held) -> AsyncIterator[int]:
    async with serving_app(BoundedPages(held, at_once_max=3)) as port:
        yield port


def post(path: str, length: int | None = None) -> bytes:
    """The head of a form; of a chunked one without a length."""
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return f"POST {path} HTTP/1.1\r\n{framing}\r\n".encode() + END + b"\r\n"


def chunk(size: int) -> bytes:
    return b"%x\r\n%s\r\n" % (size, b"a" * size)


@pytest.mark.parametrize(
    ("path", "bytes_max"),
    [("/sign-in", BODY_BYTES_MAX), ("/api/x", BODY_BYTES_MAX), ("/configuration/apply", 3 << 20)],
)
@pytest.mark.parametrize("told_first", [True, False])
async def test_a_body_over_the_bound_is_refused_before_it_is_read(
    held: Held, port: int, path: str, bytes_max: int, told_first: bool
) -> None:
    if told_first:
        (answer,) = await told(port, post(path, bytes_max + 1))
    else:
        (answer,) = await told(port, post(path), *[chunk(MEBIBYTE)] * 32)
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    if path.startswith("/api"):
        assert answer.error["code"] == "request_too_large"
        assert answer.error["fields"] == {}
    else:
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert b"Request too large" in answer.body
    assert held.sizes == []


async def test_a_body_as_large_as_the_bound_comes_whole(held: Held, port: int) -> None:
    held.go_on.set()
    (answer,) = await told(port, post("/x", BODY_BYTES_MAX), b"a" * BODY_BYTES_MAX)
    assert (answer.status, held.sizes) == (200, [BODY_BYTES_MAX])


async def test_a_body_that_does_not_end_is_cut(
    monkeypatch: pytest.MonkeyPatch, held: Held, port: int
) -> None:
    monkeypatch.setattr(bounded_pages, "BODY_S_MAX", 0.2)
    (answer,) = await told(port, post("/api/x"), *[chunk(1)] * 8, pause_s=0.05)
    assert (answer.status, answer.error["code"]) == (408, "request_timeout")
    assert held.sizes == []


async def test_bodies_share_the_memory_they_may_take_and_small_ones_always_fit(
    held: Held,
) -> None:
    pages = BoundedPages(held, at_once_max=3)
    pages.bodies.bytes_max = OWNERS_MIN * MEBIBYTE
    held.go_on.set()
    most = post("/x", BODY_BYTES_MAX), b"a" * (BODY_BYTES_MAX - 1)
    counted = BODY_BYTES_MAX - 1 - SMALL_BYTES
    async with serving_app(pages) as port, contextlib.AsyncExitStack() as held_open:
        sending = []
        for source in [ALICE, ALICE, *addresses(OWNERS_MIN - 2)]:
            reader, writer = await asyncio.open_connection(HOST, port, local_addr=(source, 0))
            held_open.enter_context(contextlib.closing(writer))
            writer.writelines(most)
            sending.append((reader, writer))
            await until(lambda: pages.bodies.used == counted * len(sending))
            if len(sending) == lent_of(OWNERS_MIN):
                (answer,) = await told(port, *most, source=ALICE)
                assert answer.status == 503, "an address has half, though nobody else is there"
        (answer,) = await told(port, *most, source=BOB)
        assert answer.status == 503, "there is no more for all"
        (small,) = await told(port, post("/x", SMALL_BYTES), b"a" * SMALL_BYTES, source=ALICE)
        assert small.status == 200
        found = []
        for reader, writer in sending:
            writer.write(b"a")
            found.append(answers(await reader.read())[0].status)
        # Others want the rest by now: the first of ALICE's grows no more.
        assert found == [503, 200, 200, 200]
    assert pages.bodies.used == 0


def getting(port: int, path: str, sources: Iterable[str]) -> list[asyncio.Task[list[Told]]]:
    """A request from each of these addresses."""
    asked = f"GET {path} HTTP/1.1\r\n".encode() + END + b"\r\n"
    return [asyncio.create_task(told(port, asked, source=source)) for source in sources]


def addresses(number: int) -> list[str]:
    """So many of them."""
    return [f"127.0.1.{each}" for each in range(1, number + 1)]


async def test_requests_at_once_are_bounded_and_the_rest_waits_its_time(
    monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    monkeypatch.setattr(bounded_pages, "WAITING_MAX", 2)
    async with serving_app(BoundedPages(held, at_once_max=3)) as port:
        asking = getting(port, "/api/x", addresses(8))
        await until(lambda: held.now == 3 == sum(task.done() for task in asking))
        held.go_on.set()
        found = [answer for each in asking for answer in await each]
    assert sorted(answer.status for answer in found) == [200] * 5 + [503] * 3
    assert held.most == 3
    refused = next(answer for answer in found if answer.status == 503)
    assert refused.error["code"] == "server_is_overloaded"
    assert int(refused.headers["retry-after"]) > 0


async def test_slow_readers_at_one_address_leave_room_for_others(
    monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    monkeypatch.setattr(bounded_pages, "WAIT_S_MAX", 0.5)
    here = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal here
        parts = [b"a" * MEBIBYTE] * 16 if scope["path"] == "/csv" else [b"a"]
        here += len(parts) > 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with serving_app(BoundedPages(app, at_once_max=8)) as port:
        with contextlib.ExitStack() as held_open:
            for _ in range(8):
                _, writer = await asyncio.open_connection(
                    HOST, port, limit=1, local_addr=(ALICE, 0)
                )
                held_open.enter_context(contextlib.closing(writer))
                writer.write(b"GET /csv HTTP/1.1\r\n" + END + b"\r\n")
            await until(lambda: here == lent_of(8))
            own, *others = getting(port, "/x", [ALICE, *addresses(4)])
            assert [answer.status for each in others for answer in await each] == [200] * 4
            assert [answer.status for answer in await own] == [503]
            assert here == lent_of(8)


async def test_whoever_waited_too_long_is_told(
    monkeypatch: pytest.MonkeyPatch, held: Held, port: int
) -> None:
    monkeypatch.setattr(bounded_pages, "WAIT_S_MAX", 0.1)
    asking = getting(port, "/api/x", addresses(5))
    await until(lambda: held.now == 3)
    await until(lambda: sum(task.done() for task in asking) == 2)
    held.go_on.set()
    found = [answer.status for each in asking for answer in await each]
    assert sorted(found) == [200] * 3 + [503] * 2


def signing_in(port: int, sources: Iterable[str]) -> list[asyncio.Task[list[Told]]]:
    """A check of a password from each of these addresses."""
    asked = post("/sign-in", 0)
    return [asyncio.create_task(told(port, asked, source=source)) for source in sources]


async def test_sign_ins_leave_room_for_pages_and_for_other_addresses(held: Held) -> None:
    own = lent_of(SIGN_INS_MAX)
    async with serving_app(BoundedPages(held, at_once_max=8)) as port:
        many = signing_in(port, [ALICE] * 20)
        await until(lambda: sum(task.done() for task in many) == 20 - own)
        others = signing_in(port, addresses(40))
        await until(lambda: sum(task.done() for task in others) == 40 - (SIGN_INS_MAX - own))
        assert held.now == SIGN_INS_AT_ONCE_MAX
        (page,) = getting(port, "/", [BOB])
        await until(lambda: held.now == SIGN_INS_AT_ONCE_MAX + 1)
        held.go_on.set()
        assert (await page)[0].status == 200
        for asked, kept in ((many, own), (others, SIGN_INS_MAX - own)):
            found = [answer.status for each in asked for answer in await each]
            assert (found.count(200), found.count(503)) == (kept, len(asked) - kept)


async def test_an_address_has_its_share_of_sign_ins_while_others_are_there() -> None:
    gate = Gate(2, 32, lent_max=2)
    entered: list[str] = []
    leaves: dict[str, asyncio.Event] = {}

    async def sign_in(name: str) -> None:
        async with gate.entered(name[0]):
            entered.append(name)
            await leaves.setdefault(name, asyncio.Event()).wait()

    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(sign_in(name)) for name in ("a1", "a2", "a3", "b1", "b2")}
        await until(lambda: entered == ["a1", "a2"])
        for leaver, comes in (("a1", "b1"), ("a2", "a3"), ("a3", "b2")):
            leaves[leaver].set()
            await tasks[leaver]
            await until(lambda: len(leaves) == len(entered))
            assert entered[-1] == comes
        for event in leaves.values():
            event.set()


async def test_who_gives_up_takes_no_place() -> None:
    gate = Gate(1, 8, lent_max=0)

    async def pass_through(address: str) -> None:
        async with gate.entered(address):
            pass

    async with gate.entered("a"):
        gone = [asyncio.create_task(pass_through(address)) for address in ("b", "c", "d")]
        await asyncio.sleep(0)
        gone[0].cancel()
    gone[1].cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    assert [task.cancelled() for task in gone] == [True, True, False]
    await pass_through("a")


@pytest.mark.parametrize("reads", [False, True])
async def test_who_reads_nothing_or_too_slowly_counts_as_gone(
    monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    monkeypatch.setattr(slow_readers, "SEND_S_MAX", 0.5 if reads else 0.2)
    monkeypatch.setattr(slow_readers, "BYTES_PER_S_MIN", 100 * MEBIBYTE)
    left = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                part = b"a" * SMALL_BYTES
                await send({"type": "http.response.body", "body": part, "more_body": True})
        finally:
            left.set()

    async with serving_app(BoundedPages(app, at_once_max=1)) as port:
        reader, writer = await asyncio.open_connection(HOST, port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\n" + END + b"\r\n")
        async with asyncio.timeout(20):
            while not left.is_set():
                if reads:
                    await reader.read(SMALL_BYTES)
                await asyncio.sleep(0.05)
        writer.close()


class SlowClient:
    """A client that takes a piece of its answer whenever it is told to."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.reads = asyncio.Event()

    async def receive(self) -> Any:
        return {"type": "http.request", "body": b""}

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.taken.append(message.get("body", b""))


def get_scope(path: str) -> dict[str, Any]:
    return {"type": "http", "method": "GET", "path": path, "headers": []}


@pytest.mark.parametrize("has_room", [True, False])
async def test_who_reads_slowly_keeps_no_place_once_the_answer_is_made(
    monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    monkeypatch.setattr(bounded_pages, "WAIT_S_MAX", 0.5)
    parts = [b"a" * SMALL_BYTES, b"b" * SMALL_BYTES, b"c"]

    async def page(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": part != b"c"})

    pages = BoundedPages(page, at_once_max=1)
    if not has_room:
        pages.answers.bytes_max = 0
    slow = [SlowClient() for _ in range(3)]
    asking = [asyncio.create_task(pages(get_scope("/x"), c.receive, c.send)) for c in slow]
    await asyncio.sleep(0.1)
    assert (pages.answers.used > 0) and not any(task.done() for task in asking)
    other = SlowClient()
    other.reads.set()
    await pages(get_scope("/api/x"), other.receive, other.send)
    assert (other.taken == [b"", *parts]) == has_room
    for client in slow:
        client.reads.set()
    await asyncio.gather(*asking)
    assert [client.taken == [b"", *parts] for client in slow].count(True) == (3 if has_room else 1)
    assert pages.answers.used == 0


@pytest.fixture
def strict(database: str) -> Iterator[Client]:
    """A client that sees the answer where a view fails."""
    yield Client(raise_request_exception=False)


@pytest.mark.parametrize("path", ["/api/fleet/pools", "/v1/organization/costs"])
def test_without_a_database_programs_are_told_to_come_back(strict: Client, path: str) -> None:
    strict.cookies["sessionid"] = "a" * 32
    with unreachable():
        answer = strict.get(path)
    assert (answer.status_code, answer["retry-after"]) == (503, "2")
    error = answer.json()["error"]
    assert error["code"] == "database_unavailable"
    assert (error["param"], error["fields"]) == (None, {})


@pytest.mark.parametrize("path", ["/", "/keys", "/sign-in"])
def test_without_a_database_people_are_told_in_words(strict: Client, path: str) -> None:
    strict.cookies["sessionid"] = "a" * 32
    with unreachable():
        answer = strict.get(path)
    assert (answer.status_code, answer["retry-after"]) == (503, "2")
    assert b"Database unavailable" in answer.content


async def test_the_same_over_a_socket(database: str) -> None:
    entrance = build("web")
    with unreachable():
        async with serving_app(entrance) as port:
            cookie = b"Cookie: sessionid=" + b"a" * 32 + b"\r\n"
            for path in (b"/", b"/api/fleet/pools"):
                (answer,) = await told(port, b"GET %s HTTP/1.1\r\n" % path + cookie + END + b"\r\n")
                assert (answer.status, answer.headers["retry-after"]) == (503, "2")
    entrance.probes.stop()


@pytest.mark.parametrize("path", ["/api/nothing", "/v1/organization/nothing", "/api/"])
def test_unknown_paths_of_the_api_are_typed(strict: Client, path: str) -> None:
    answer = strict.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
    assert path in answer.json()["error"]["message"]


def test_a_host_that_pages_do_not_answer_to_is_refused_in_kind(strict: Client) -> None:
    answer = strict.get("/api/fleet/pools", headers={"host": "evil.example"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed_request")
