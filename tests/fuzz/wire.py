"""HTTP/1.1 by hand: requests that are mutated as bytes, and answers as they come."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fuzz.bodies import draw_body
from tests.fuzz.case import KEY
from tests.support.loopback import HOST

# A request that is whole is answered within this, whatever else the machine does.
ANSWER_S_MAX = 20.0
# One that may not be whole is waited for this long.
QUIET_S = 0.3
HEAD_BYTES_MAX = 2**16
ANSWER_BYTES_MAX = 2**26
RAW_ONE_IN = 3
HEADERS_MANY = 3_000
PATHS = (
    "/v1/models", "/v1/models/sluice-5m", "/v1/models/%00", "/v1/key", "/v1", "/v1/", "//v1/models",
    "/v1//models", "/v1/../v1/models", "/V1/models", "/v1/models?x=%ff", "/v1/chat/completions/",
    "/healthz", "/v1/" + "a" * 9_000, "/v1/\xe9", "*", "http://x/v1/models", "v1/models",
)  # fmt: skip
METHODS = (
    "GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "post", "TRACE", "GE T", "\xff", "",
)  # fmt: skip


@dataclass
class Request:
    """The parts of a request, in the order in which they are sent. `whole` where it is sound."""

    method: str
    target: str
    body: bytes
    version: str = "HTTP/1.1"
    headers: list[tuple[str, str]] = field(default_factory=list)
    end: bytes = b"\r\n"
    whole: bool = True

    def encode(self) -> bytes:
        """As bytes."""
        lines = [f"{self.method} {self.target} {self.version}"]
        lines += [f"{name}: {text}" for name, text in self.headers]
        head = self.end.join(line.encode("latin-1", "replace") for line in lines)
        return head + self.end * 2 + self.body


def sound(path: str, body: bytes) -> Request:
    """A request as any client would send it."""
    headers = [
        ("host", "sluice"),
        ("authorization", f"Bearer {KEY.decode()}"),
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
    ]
    return Request("POST", path, body, headers=headers)


def _method(request: Request, chance: random.Random) -> None:
    request.method = chance.choice(METHODS)


def _target(request: Request, chance: random.Random) -> None:
    request.method = chance.choice(("GET", "POST"))
    request.target = chance.choice(PATHS)


def _version(request: Request, chance: random.Random) -> None:
    request.version = chance.choice(
        ("HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTTP/1.11", "http/1.1", "")
    )


def _set(request: Request, name: str, text: str) -> None:
    request.headers = [pair for pair in request.headers if pair[0] != name] + [(name, text)]


def _length(request: Request, chance: random.Random) -> None:
    size = len(request.body)
    texts = (
        size - 1,
        size + 1,
        -1,
        2**63,
        2**70,
        "",
        "x",
        f"+{size}",
        f"{size}, {size}",
        "0x10",
        0,
    )
    _set(request, "content-length", str(chance.choice(texts)))


def _length_twice(request: Request, chance: random.Random) -> None:
    request.headers.append(("content-length", str(chance.choice((0, 5, len(request.body))))))


def _chunked(request: Request, chance: random.Random) -> None:
    request.headers = [pair for pair in request.headers if pair[0] != "content-length"]
    coding = chance.choice(("chunked", "Chunked", "gzip, chunked", "identity", "chunked, x", "x"))
    request.headers.append(("transfer-encoding", coding))
    size = b"%x" % len(request.body)
    request.body = chance.choice((
        size + b"\r\n" + request.body + b"\r\n0\r\n\r\n",
        size + b";a=b\r\n" + request.body + b"\r\n0\r\nx: y\r\n\r\n",
        b"fffffffffffffffff\r\n" + request.body,
        b"-1\r\n" + request.body,
        b"zz\r\n" + request.body,
        size + b"\r\n" + request.body + b"0\r\n\r\n",
        size + b"\n" + request.body + b"\n0\n\n",
    ))  # fmt: skip


def _both_lengths(request: Request, chance: random.Random) -> None:
    _set(request, "transfer-encoding", "chunked")


def _authorization(request: Request, chance: random.Random) -> None:
    key = KEY.decode()
    text = chance.choice((
        "", "Bearer", f"Basic {key}", f"Bearer  {key}", f"bearer {key}", "Bearer x",
        f"Bearer {key[:-1]}", "Bearer \xff", "Bearer " + "x" * 5_000,
    ))  # fmt: skip
    _set(request, "authorization", text)


def _authorization_twice(request: Request, chance: random.Random) -> None:
    request.headers.append(("authorization", chance.choice(("Bearer x", "Basic x"))))


def _host(request: Request, chance: random.Random) -> None:
    request.headers = [pair for pair in request.headers if pair[0] != "host"]
    request.headers += [("host", "a")] * chance.choice((0, 2))


def _header(request: Request, chance: random.Random) -> None:
    name, text = chance.choice((
        ("expect", "100-continue"), ("expect", "x"), ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("content-encoding", "gzip"), ("content-type", "text/plain"), ("content-type", ""),
        ("accept", "\xff"), ("x" * 300, "y"), ("x\0y", "z"), ("x y", "z"), ("", "z"), ("x", "a\0b"),
        ("idempotency-key", ""), ("idempotency-key", "k" * 300), ("idempotency-key", "\xe9"),
        ("traceparent", "00-zz-1-1"), ("tracestate", "a=" * 900), ("openai-organization", "x"),
        ("x-forwarded-for", "1.2.3.4, x"), ("origin", "null"),
        ("content-type", "application/json; q"),
        ("x-sluice-priority", "9" * 30), ("x-request-timeout", "-1"), ("te", "trailers"),
    ))  # fmt: skip
    _set(request, name, text)


def _many_headers(request: Request, chance: random.Random) -> None:
    request.headers += [(f"x-{number}", "y" * 40) for number in range(HEADERS_MANY)]


def _line_end(request: Request, chance: random.Random) -> None:
    request.end = chance.choice((b"\n", b"\r", b"\r\n ", b"\r\r\n"))


SHAPES: tuple[Callable[[Request, random.Random], None], ...] = (
    _method, _target, _version, _length, _length_twice, _chunked, _both_lengths, _authorization,
    _authorization_twice, _host, _header, _header, _header, _many_headers, _line_end,
)  # fmt: skip


def _bytes(data: bytes, chance: random.Random) -> bytes:
    """Cut, changed or doubled."""
    at = chance.randrange(len(data))
    return chance.choice((
        data[:at], data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :], data + data[:at],
        b"\r\n" + data,
    ))  # fmt: skip


def draw_request(chance: random.Random) -> bytes:
    """One request, sound around a mutated body or mutated itself."""
    request = sound(*draw_body(chance))
    if chance.randrange(RAW_ONE_IN):
        return request.encode()
    for _ in range(chance.choice((1, 1, 2))):
        chance.choice(SHAPES)(request, chance)
    data = request.encode()
    return _bytes(data, chance) if not chance.randrange(RAW_ONE_IN) else data


@dataclass
class Reply:
    """An answer; status 0 when none came. `cut` where it began and did not end by itself."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: bool = False


def is_sound(data: bytes) -> bool:
    """Whether a server has to answer it: one head, one length, and a body of that length."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    lengths = [line[15:].strip() for line in lines if line.lower().startswith(b"content-length:")]
    chunked = any(line.lower().startswith(b"transfer-encoding:") for line in lines)
    return lines[0].endswith(b" HTTP/1.1") and not chunked and lengths == [b"%d" % len(body)]


async def exchange(port: int, data: bytes) -> Reply:
    """Send a request on a connection of its own and read the answer, if there is one.

    Raises TimeoutError where a request that is whole, or an answer that has begun, does not end.
    """
    reader, writer = await asyncio.open_connection(HOST, port, limit=ANSWER_BYTES_MAX)
    sending = asyncio.create_task(_send(writer, data))
    reply = Reply()
    try:
        wait_s = ANSWER_S_MAX if is_sound(data) else QUIET_S
        head = b""
        with contextlib.suppress(TimeoutError if wait_s == QUIET_S else asyncio.CancelledError):
            async with asyncio.timeout(wait_s):
                head = await _head(reader)
        if head:
            async with asyncio.timeout(ANSWER_S_MAX):
                await _fill(reply, head, reader, bodiless=data.lstrip().startswith(b"HEAD "))
    except (ConnectionError, asyncio.IncompleteReadError):
        reply.cut = bool(reply.status)
    finally:
        sending.cancel()
        await asyncio.wait([sending])
        writer.transport.abort()
    return reply


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        await writer.drain()


async def _head(reader: asyncio.StreamReader) -> bytes:
    """The head of the answer proper; empty where the connection was closed without one."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            return error.partial
        if not head.startswith(b"HTTP/1.1 1"):
            return head


async def _fill(reply: Reply, head: bytes, reader: asyncio.StreamReader, *, bodiless: bool) -> None:
    first, *lines = head.decode("latin-1").split("\r\n")
    reply.status = int(first.split(" ")[1])
    pairs = (line.partition(":") for line in lines if line)
    reply.headers = {name.lower(): text.strip() for name, _, text in pairs}
    if bodiless:
        return
    if reply.headers.get("transfer-encoding") == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            reply.body += (await reader.readexactly(size + 2))[:-2]
    elif "content-length" in reply.headers:
        reply.body = await reader.readexactly(int(reply.headers["content-length"]))
    else:
        reply.body = await reader.read(-1)
