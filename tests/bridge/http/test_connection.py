"""The HTTP edge on raw sockets: bounds, framing, refusals; each answered typed, in order, whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from controlplane.bridge.http import head as head_module
from controlplane.bridge.http.connection import DOORS
from controlplane.bridge.http.doors import PER_ADDRESS_MAX
from tests.bridge.http.apps import DirectEcho, Echo
from tests.support.loopback import HOST
from tests.support.raw import serving_app, talk, told

GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: a\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
LENGTH, UPGRADE = b"Content-Length: 3\r\n", b"Connection: upgrade\r\nUpgrade: "
MEBIBYTE = 1 << 20


@pytest.fixture(params=[Echo, DirectEcho])
def app(request: pytest.FixtureRequest) -> Echo:
    """Through ASGI, and as the gateway is."""
    made: Echo = request.param()
    return made


@pytest.fixture
async def port(app: Echo) -> AsyncIterator[int]:
    async with serving_app(app) as port:
        yield port


def head(*lines: bytes) -> bytes:
    return b"\r\n".join([b"GET /a HTTP/1.1", *lines, b"", b""])


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (head(), 400, "invalid_header"),
        (head(b"Host: a", b"Host: a"), 400, "invalid_header"),
        (head(b"Host: a/b"), 400, "invalid_header"),
        (head(b"Host: a", b"Authorization: x", b"Authorization: y"), 400, "invalid_header"),
        (head(b"Host: a", b"X-Api-Key: x", b"x-api-key: y"), 400, "invalid_header"),
        (head(b"Host : a"), 400, "malformed_request"),
        (head(b"Host: a", b"X: a", b" folded"), 400, "malformed_request"),
        (head(b"Host: a\nX: b"), 400, "malformed_request"),
        (head(b"Host: a\rX: b"), 400, "malformed_request"),
        (head(b"Host: a\0b"), 400, "malformed_request"),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400, "malformed_request"),
        (b"what is this\r\n\r\n", 400, "malformed_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", 400, "malformed_request"),
        (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, "unsupported_http_version"),
        (b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505, "unsupported_http_version"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed_request"),
        (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        (b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        (POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde", 400, "malformed_request"),
        (POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde", 400, "malformed_request"),
        (POST + b"Content-Length: 5, 5\r\n\r\nabcde", 400, "malformed_request"),
        (POST + b"Content-Length: +5\r\n\r\nabcde", 400, "malformed_request"),
        (POST + b"Content-Length: -1\r\n\r\nabcde", 400, "malformed_request"),
        (POST + b"Content-Length: 99999999999999999999\r\n\r\n", 400, "malformed_request"),
        (
            POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            "malformed_request",
        ),
        (
            POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
            400,
            "malformed_request",
        ),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501, "unsupported_transfer_encoding"),
        (POST + b"Transfer-Encoding: xchunked\r\n\r\n", 501, "unsupported_transfer_encoding"),
        (
            POST + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n",
            501,
            "unsupported_transfer_encoding",
        ),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "invalid_header"),
        (CHUNKED + b"0x5\r\nabcde\r\n0\r\n\r\n", 400, "malformed_request"),
        (CHUNKED + b"-5\r\nabcde\r\n0\r\n\r\n", 400, "malformed_request"),
        (CHUNKED + b"ffffffffffffffffff\r\nabcde", 400, "malformed_request"),
        (CHUNKED + b"5 \r\nabcde\r\n0\r\n\r\n", 400, "malformed_request"),
        (CHUNKED + b"5\nabcde\n0\n\n", 400, "malformed_request"),
        (CHUNKED + b"5\r\nabcdefg\r\n0\r\n\r\n", 400, "malformed_request"),
        (
            POST + UPGRADE + b"websocket\r\n" + LENGTH + b"\r\nabc",
            400,
            "upgrade_refused",
        ),
        (
            POST
            + b"Connection: upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            "upgrade_refused",
        ),
    ],
)
async def test_what_is_no_clear_request_is_refused_and_the_connection_ends(
    app: Echo, port: int, data: bytes, status: int, code: str
) -> None:
    (answer,) = await told(port, data, LAST)
    assert (answer.status, answer.error["code"]) == (status, code)
    assert answer.headers["connection"] == "close"
    assert "/last" not in app.seen


async def test_a_request_in_pieces_and_many_in_one_piece(port: int) -> None:
    whole = POST + b"Content-Length: 5\r\n\r\nabcde"
    letters = [bytes([letter]) for letter in whole]
    (one, last) = await told(port, *letters, LAST)
    assert json.loads(one.body) == {"path": "/a", "bytes": 5, "headers": 2}
    assert json.loads(last.body)["path"] == "/last"
    found = await told(port, GET * 8 + whole + CHUNKED + b"3\r\nabc\r\n0\r\nX: y\r\n\r\n" + LAST)
    assert [json.loads(each.body)["bytes"] for each in found] == [0] * 8 + [5, 3, 0]
    # A header that follows the body is none of the request's.
    assert json.loads(found[9].body)["headers"] == 2


async def test_a_broken_request_waits_for_the_answers_before_it(app: Echo, port: int) -> None:
    slow = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"
    for broken in (b"junk\r\n\r\n", CHUNKED + b"zz\r\n", GET + CHUNKED + b"zz\r\n"):
        app.go_on.clear()
        asking = asyncio.create_task(told(port, slow + broken))
        await asyncio.sleep(0.05)
        app.go_on.set()
        found = await asking
        assert [each.status for each in found][0] == 200
        assert json.loads(found[0].body)["path"] == "/slow"
        assert found[-1].error["code"] == "malformed_request"


async def test_only_so_many_requests_wait_in_one_connection(app: Echo, port: int) -> None:
    slow = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"
    asking = asyncio.create_task(told(port, slow + GET * 1000))
    await asyncio.sleep(0.1)
    app.go_on.set()
    found = await asking
    assert len(found) == 1 + head_module.PIPELINED_MAX + 1
    assert found[-1].error["code"] == "too_many_pipelined"


@pytest.mark.parametrize(
    ("begun", "more", "status", "code"),
    [
        (b"GET /a", b"a" * 65_536, 414, "url_too_long"),
        (head(b"Host: a")[:-2] + b"x: ", b"a" * 65_536, 431, "headers_too_large"),
        (head(b"Host: a")[:-2], b"x: a\r\n" * 10_000, 431, "headers_too_large"),
        (head(b"Host: a")[:-2], b"x: " + b"a" * 999 + b"\r\n", 431, "headers_too_large"),
        (CHUNKED + b"5;", b"a" * 65_536, 431, "headers_too_large"),
        (CHUNKED + b"0\r\nx: ", b"a" * 65_536, 431, "headers_too_large"),
        (b"", b"\r\n" * 32_768, 431, "headers_too_large"),
    ],
)
async def test_heads_without_end_are_refused(
    port: int, begun: bytes, more: bytes, status: int, code: str
) -> None:
    (answer,) = await told(port, begun, *[more] * 200)
    assert (answer.status, answer.error["code"]) == (status, code)


async def test_a_head_may_have_as_much_as_the_bound(port: int) -> None:
    lines = [b"x-%d: %s" % (n, b"a" * 640) for n in range(97)]
    (answer,) = await told(port, head(b"Host: a", b"Connection: close", *lines))
    assert answer.status == 200


async def test_heads_that_drip_are_cut(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(DOORS, "head_s", 0.3)
    drip = [b"GET /a HTTP/1.1\r\n", *[b"x: a\r\n"] * 10]
    (answer,) = await told(port, *drip, pause_s=0.05)
    assert (answer.status, answer.error["code"]) == (408, "request_timeout")
    # The second request of a connection is timed as the first is.
    first, second = await told(port, GET, *drip, pause_s=0.05)
    assert (first.status, second.status) == (200, 408)
    assert await talk(port) == b""


async def test_a_slow_answer_is_not_cut_for_the_next_head(
    monkeypatch: pytest.MonkeyPatch, app: Echo, port: int
) -> None:
    monkeypatch.setattr(DOORS, "head_s", 0.1)
    asking = asyncio.create_task(
        told(port, b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET /a HT", pause_s=0.5)
    )
    await asyncio.sleep(0.4)
    app.go_on.set()
    found = await asking
    assert json.loads(found[0].body)["path"] == "/slow"
    assert [each.status for each in found] == [200, 408]


async def test_http_10_is_answered_whole_and_closed(port: int) -> None:
    for head in (b"GET /a HTTP/1.0\r\n\r\n", b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"):
        (answer,) = await told(port, head)
        assert answer.headers["connection"] == "close"
        assert "transfer-encoding" not in answer.headers
        assert answer.body.endswith(b"}   ")


async def test_a_body_is_waited_for_only_where_it_is_wanted(port: int) -> None:
    expect = b"POST %s HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    go_on, answer, _ = await told(port, expect % b"/a", b"abcd" + LAST, pause_s=0.1)
    assert (go_on.status, answer.status) == (100, 200)
    (early,) = await told(port, expect % b"/early")
    assert (early.status, early.headers["connection"]) == (200, "close")


async def test_an_early_answer_is_heard_though_the_body_goes_on(app: Echo, port: int) -> None:
    begun = b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (64 * MEBIBYTE)
    (answer,) = await told(port, begun, *[b"a" * MEBIBYTE] * 8, LAST)
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert app.seen == ["/early"]


async def test_an_application_that_fails_is_answered_for(port: int) -> None:
    (answer,) = await told(port, b"GET /fails HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (answer.status, answer.error["code"]) == (500, "internal_error")


NONCE = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="


@pytest.mark.parametrize(
    "lines",
    [
        (b"Upgrade: websocket", NONCE),
        (b"Upgrade: websocket", NONCE, b"Sec-WebSocket-Version: 7"),
        (b"Upgrade: websocket", NONCE[:-4], b"Sec-WebSocket-Version: 13"),
    ],
)
async def test_an_upgrade_to_what_is_not_spoken_is_answered_without(
    app: Echo, port: int, lines: tuple[bytes, ...]
) -> None:
    asked = head(b"Host: a", b"Connection: Upgrade, HTTP2-Settings", *lines)
    (answer,) = await told(port, asked, LAST)
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert app.seen == ["/a"]


@pytest.mark.parametrize("pieces", [False, True])
async def test_an_upgrade_to_an_unknown_protocol_is_ignored(port: int, pieces: bool) -> None:
    h2c = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
    asked = GET[:-2] + h2c + b"\r\n" + POST + h2c + b"Content-Length: %d\r\n\r\n" % len(GET)
    # A body that looks like a request is none.
    asked += GET + POST + h2c + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + LAST
    found = await told(port, *([bytes([each]) for each in asked] if pieces else [asked]))
    assert [json.loads(each.body)["bytes"] for each in found] == [0, len(GET), 3, 0]
    assert json.loads(found[-1].body)["path"] == "/last"
    found = await told(port, GET[:-2] + h2c + b"\r\n" + head(b"Host: a", b"Host: a"))
    assert (found[0].status, found[1].error["code"]) == (200, "invalid_header")


async def open_many(port: int, count: int) -> list[asyncio.StreamWriter]:
    found = [await asyncio.open_connection(HOST, port) for _ in range(count)]
    return [writer for _, writer in found]


@pytest.mark.parametrize("bound", ["open_max", "per_address_max"])
async def test_open_connections_are_bounded(
    monkeypatch: pytest.MonkeyPatch, port: int, bound: str
) -> None:
    monkeypatch.setattr(DOORS, bound, 3)
    writers, before = await open_many(port, 3), DOORS.refused_total
    await asyncio.sleep(0.05)
    (answer,) = await told(port, GET)
    assert (answer.status, answer.error["code"]) == (503, "too_many_connections")
    assert answer.headers["retry-after"] == "1"
    assert DOORS.refused_total == before + 1
    if bound == "per_address_max":
        monkeypatch.setattr(DOORS, "trusted", ("127.0.0.0/8",))
        assert (await told(port, LAST))[0].status == 200
    writers.pop().close()
    await asyncio.sleep(0.05)
    assert (await told(port, LAST))[0].status == 200
    for writer in writers:
        writer.close()
    monkeypatch.undo()
    await asyncio.sleep(0.05)
    assert (DOORS.refused, DOORS.per_address_max) == (0, PER_ADDRESS_MAX)
