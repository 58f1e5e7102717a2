"""One Redis connection that runs one script: a bare protocol on hiredis' parser.

redis-py's client costs several times more CPU per call than the script itself. One call is in
flight at a time; a reply that is late or odd ends the connection, so that answers never shift.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha1
from typing import Any, NamedTuple, cast

import hiredis
import structlog
from redis.asyncio.connection import SSLConnection, parse_url

from controlplane.embedded.redis_places import master_url
from controlplane.gateway.nodes.measured.times import Bound, LearnedBound

HANDSHAKE_S_MAX = 1.0
REPLY = Bound(floor_s=0.05, cap_s=0.25)
# uvloop runs timers before input: after a stall of our own a reply may already wait in the socket.
LATE_REPLY_GRACE_S = 0.01
RECONNECT_S_MIN = 0.1
RECONNECT_S_MAX = 1.0

_log = structlog.get_logger(__name__)
OnReply = Callable[[list[int] | None], None]


class ScriptPlace(NamedTuple):
    """Where a script runs, and how long its replies may take."""

    url: str
    script: bytes
    bound: LearnedBound


class RedisLink(asyncio.Protocol):
    """`call` sends the script; its callback gets the reply, or None when the link is lost."""

    def __init__(self, script: bytes, bound: LearnedBound) -> None:
        self._script = script
        self._bound = bound
        self._asked_s = 0.0
        digest = sha1(script, usedforsecurity=False).hexdigest().encode()
        self._head = b"$7\r\nEVALSHA\r\n$40\r\n" + digest + b"\r\n"
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._on_reply: OnReply | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._greeting: asyncio.Future[None] | None = None
        self._replies_awaited = 0
        self._greeted = False
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def connect(cls, url: str, script: bytes, bound: LearnedBound) -> RedisLink:
        """A ready link, whose replies keep the bound; raises OSError, TimeoutError or
        hiredis.HiredisError.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(HANDSHAKE_S_MAX):
            options: dict[str, Any] = dict(parse_url(await master_url(url)))
            kind = options.pop("connection_class", None)
            if "path" in options:
                _, link = await loop.create_unix_connection(
                    lambda: cls(script, bound), options["path"]
                )
            else:
                secure = kind(**options).ssl_context.get() if kind is SSLConnection else None
                _, link = await loop.create_connection(
                    lambda: cls(script, bound),
                    options.get("host", "localhost"),
                    int(options.get("port", 6379)),
                    ssl=secure,
                )
            try:
                await link._greet(_greeting(options, script))
            finally:
                if not link._greeted:
                    link.close()
        return link

    @property
    def open(self) -> bool:
        """Whether a call may be made, once the one in flight is answered."""
        return self._transport is not None

    def call(self, keys: list[bytes], argument: bytes, on_reply: OnReply) -> None:
        """Run the script; `keys` are encoded by `bulk`. Needs that no call is in flight."""
        if self._transport is None or self._on_reply is not None:
            raise RuntimeError("the link is closed or busy")
        self._on_reply = on_reply
        self._asked_s = self._loop.time()
        self._timer = self._loop.call_later(self._bound.seconds, self._late)
        count = b"*%d\r\n" % (len(keys) + 4)
        number = bulk(b"%d" % len(keys))
        self._transport.write(b"".join((count, self._head, number, *keys, bulk(argument))))

    def close(self) -> None:
        """End the link now; a call in flight is answered with None."""
        if self._transport is not None:
            self._transport.abort()
        self._lost()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's, though they do all that theirs do.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            reply = self._reader.gets()
            while reply is not False:
                self._take(reply)
                reply = self._reader.gets()
        except hiredis.ProtocolError:
            self.close()

    def _take(self, reply: object) -> None:
        if self._greeting is not None:
            self._take_greeting(reply)
            return
        on_reply, self._on_reply = self._on_reply, None
        if self._timer is not None:
            self._timer.cancel()
            self._bound.took(self._loop.time() - self._asked_s)
        if on_reply is None or not isinstance(reply, list):
            # An error, or an answer to nothing: whatever follows cannot be trusted.
            self.close()
            if on_reply is not None:
                on_reply(None)
            return
        on_reply(reply)

    async def _greet(self, commands: list[bytes]) -> None:
        if self._transport is None:
            raise ConnectionError("closed at once")
        self._greeting = self._loop.create_future()
        self._replies_awaited = len(commands)
        self._transport.write(b"".join(commands))
        try:
            await self._greeting
        finally:
            self._greeting = None

    def _take_greeting(self, reply: object) -> None:
        if self._greeting is None or self._greeting.done():
            return
        self._replies_awaited -= 1
        if isinstance(reply, hiredis.ReplyError):
            self._greeting.set_exception(reply)
        elif self._replies_awaited == 0:
            self._greeted = True
            self._greeting.set_result(None)

    def _late(self) -> None:
        self._bound.took(self._loop.time() - self._asked_s)
        self._timer = self._loop.call_later(LATE_REPLY_GRACE_S, self.close)

    def _lost(self) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(ConnectionError("closed while greeting"))
        on_reply, self._on_reply = self._on_reply, None
        if not self.closed.done():
            self.closed.set_result(None)
        if on_reply is not None:
            on_reply(None)


async def keep_link(
    place: ScriptPlace,
    serve: Callable[[RedisLink], Awaitable[object]],
    lost: Callable[[], None],
) -> None:
    """Connect, `serve` until the link is closed, say that it is `lost`, and begin again."""
    wait_s = RECONNECT_S_MIN
    while True:
        try:
            link = await RedisLink.connect(*place)
            try:
                await serve(link)
                wait_s = RECONNECT_S_MIN
            finally:
                link.close()
        except Exception as error:  # Process edge: whatever Redis answers, it is asked again.
            _log.info("redis is away", error=repr(error))
        lost()
        await asyncio.sleep(wait_s)
        wait_s = min(RECONNECT_S_MAX, wait_s * 2)


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def _greeting(options: dict[str, Any], script: bytes) -> list[bytes]:
    commands = []
    if options.get("password"):
        names = [str(options[k]) for k in ("username", "password") if options.get(k)]
        commands.append(_command("AUTH", *names))
    if options.get("db"):
        commands.append(_command("SELECT", str(options["db"])))
    commands.append(_command("SCRIPT", "LOAD", script.decode()))
    return commands


def _command(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(bulk(word.encode()) for word in words)
