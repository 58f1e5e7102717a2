"""Whatever bytes come, in whatever pieces: each answer is whole and typed, and nothing stays."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.bridge.http.connection import DOORS
from tests.bridge.http.apps import DirectEcho, Echo
from tests.bridge.http.test_connection import CHUNKED, GET, LAST, POST
from tests.support.loopback import HOST
from tests.support.raw import Told, answers, serving_app

QUIET_S, START_S_MAX = 0.5, 20.0
REFUSED = {400, 408, 414, 431, 501, 505}
WHOLE = (
    GET,
    POST + b"Content-Length: 5\r\n\r\nabcde",
    CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: z\r\n\r\n",
    b"POST /early HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
)
SNIPPETS = (
    b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"\xff", b"Content-Length: 3\r\n", b"Host: b\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"0\r\n\r\n",
    b"Connection: close\r\n", b"HTTP/1.0", b"Expect: 100-continue\r\n", b"a" * 70_000,
)  # fmt: skip


@pytest.fixture(scope="module", params=[Echo, DirectEcho])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """A server on a thread, since examples are many and each has a connection of its own."""
    ready, ended = threading.Event(), asyncio.Event()
    found: list[int] = []

    async def serve() -> None:
        async with serving_app(request.param(), timeout_keep_alive=1) as port:
            found.append(port)
            loops.append(asyncio.get_running_loop())
            ready.set()
            await ended.wait()

    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(START_S_MAX)
    yield found[0]
    loops[0].call_soon_threadsafe(ended.set)
    thread.join()
    assert DOORS.refused == 0
    assert not DOORS._of


def sent(port: int, pieces: list[bytes]) -> list[Told]:
    """What comes back until the server closes; one that waits for more is told there is none."""
    heard = b""
    with socket.create_connection((HOST, port)) as connection:
        connection.settimeout(QUIET_S)
        with suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        while True:
            try:
                part = connection.recv(1 << 16)
            except TimeoutError:
                connection.shutdown(socket.SHUT_WR)
                continue
            if not part:
                return answers(heard)
            heard += part


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces."""
    ends = sorted({place % len(data) for place in places} | {len(data)})
    return [data[since:end] for since, end in zip([0, *ends], ends, strict=False)]


def checked(found: list[Told]) -> list[int]:
    """Statuses but for 100; every refusal is typed and the last of its connection."""
    told = [answer for answer in found if answer.status != 100]
    for place, answer in enumerate(told):
        assert answer.status == 200 or answer.status in REFUSED
        if answer.status in REFUSED:
            assert answer.error["code"] and place == len(told) - 1
    return [answer.status for answer in told]


@settings(max_examples=40)
@given(st.lists(st.sampled_from(WHOLE[:3]), max_size=8), st.lists(st.integers(0, 4_000)))
def test_pieces_and_rows_of_requests_make_no_difference(
    port: int, asked: list[bytes], places: list[int]
) -> None:
    found = sent(port, cut(b"".join([*asked, LAST]), places))
    assert checked(found) == [200] * (len(asked) + 1)


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(WHOLE), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from(SNIPPETS), st.integers(0, 3))),
    st.lists(st.integers(0, 4_000), max_size=3),
)
def test_broken_requests_are_answered_typed_or_not_at_all(
    port: int, asked: list[bytes], edits: list[tuple[int, bytes, int]], places: list[int]
) -> None:
    data = bytearray(b"".join(asked))
    for at, snippet, gone in edits:
        place = at % (len(data) + 1)
        data[place : place + gone] = snippet
    checked(sent(port, cut(bytes(data) + LAST, places)))
    assert checked(sent(port, [LAST])) == [200]
