"""Requests over HTTP/1.1 and their streamed answers, with the moments at which these came.

Clients of many requests share one core with all else that a run does, so bytes go from the socket
through a parser in C to typed events, without a stack of wrappers between.
"""

import asyncio
import ssl
from typing import Any, cast
from urllib.parse import urlsplit

import httptools
import msgspec

from controlplane.insights.load.samples import LEFT, OK, LoadSample
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.money import nano_from_usd
from inference.tls import client_context

CHAT = "/chat/completions"
CONNECT_S_MAX, ANSWER_S_MAX = 10.0, 120.0
EVENT_BYTES_MAX = WHOLE_BYTES_MAX = 4 * 2**20
CODE_CHARS_MAX, MESSAGE_CHARS_MAX = 60, 120
OK_STATUS = 200
TLS_PORT, PLAIN_PORT = 443, 80
CUT_OFF, TIMED_OUT = "stream: cut off", "timed out"
_EVENT, _DONE, _STREAM = b"data:", b"[DONE]", b"text/event-stream"
# What of a choice is text, a thought or part of a tool call.
_TELL = ("content", "reasoning_content", "reasoning", "tool_calls")
# Of streams whose events have names: those with text, and those that end a stream.
_TEXTS = frozenset({"response.output_text.delta", "content_block_delta"})
_ENDS = frozenset({"response.completed", "response.incomplete", "message_stop"})


class _Choice(msgspec.Struct):
    delta: dict[str, Any] | None = None
    text: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    type: str = ""
    model: str | None = None
    sluice: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Event).decode


def request_bytes(path: str, key: str, body: Any, host: str = "127.0.0.1") -> bytes:
    """A POST of JSON; without a key where that is empty."""
    data = msgspec.json.encode(body)
    bearer = f"authorization: Bearer {key}\r\n" if key else ""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\n{bearer}user-agent: sluice-load\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


class LoadConnection(asyncio.Protocol):
    """A connection that is kept, for one request at a time; `open_to` makes it."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._ended: asyncio.Future[None] | None = None

    @classmethod
    async def open_to(
        cls, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> "LoadConnection":
        """Raises OSError, also where connecting takes too long."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_S_MAX):
            _, made = await loop.create_connection(cls, host, port, ssl=tls)
        return made

    @property
    def closed(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.abort()

    async def ask(self, request: bytes, sample: LoadSample) -> None:
        """Fill the sample; whatever goes wrong is its code, and closes the connection."""
        self._sample, self._status, self._rest = sample, 0, b""
        self._streams = self._done = False
        self._ended = asyncio.get_running_loop().create_future()
        sample.sent_s = monotonic_s()
        try:
            self._transport.write(request)
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._ended
        except TimeoutError:
            sample.code = TIMED_OUT
        finally:
            if sample.code != OK or not self._parser.should_keep_alive():
                self.close()
        sample.output_tokens = sample.output_tokens or sample.events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._ended is None or self._ended.done():
            # Nobody has asked for that.
            self.close()
            return
        self._now_s = monotonic_s()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._end("connection: no HTTP")
        if self._sample.pause_s and not self._ended.done():
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(self._sample.pause_s, self._go_on)

    def _go_on(self) -> None:
        if not self.closed:
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self._ended is None or self._ended.done():
            return
        if self._streams:
            self._end(OK if self._done else CUT_OFF)
        else:
            self._end(f"connection: {type(error).__name__ if error else 'closed'}")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            self._streams = value.startswith(_STREAM)
        elif name == b"x-request-id":
            self._sample.request = value.decode("latin-1")
        elif name == b"x-sluice-model":
            self._sample.model = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._streams = self._streams and self._status == OK_STATUS

    def on_body(self, data: bytes) -> None:
        if not self._streams:
            self._rest += data[: WHOLE_BYTES_MAX - len(self._rest)]
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > EVENT_BYTES_MAX:
            self._end("stream: an event is too long")
        for line in lines:
            if line.startswith(_EVENT):
                self._note(line[len(_EVENT) :].strip())

    def on_message_complete(self) -> None:
        if self._streams:
            self._end(OK if self._done else CUT_OFF)
        elif self._status == OK_STATUS:
            self._note(self._rest)
            self._sample.last_s = self._now_s
            self._end(OK)
        else:
            try:
                told = msgspec.json.decode(self._rest)
            except msgspec.MsgspecError:
                told = None
            error = told.get("error", told) if isinstance(told, dict) else None
            self._fail(str(self._status), error)

    def _note(self, data: bytes) -> None:
        """One event of a stream, or a whole answer."""
        if data == _DONE:
            self._done = True
            return
        try:
            event = _decode(data)
        except msgspec.MsgspecError:
            self._end("stream: not an event")
            return
        if event.error is not None:
            self._fail("stream:", event.error)
            return
        sample = self._sample
        if usage := event.usage:
            sample.prompt_tokens = usage.get("prompt_tokens") or 0
            sample.output_tokens = usage.get("completion_tokens") or 0
            details = usage.get("prompt_tokens_details") or {}
            sample.cached_tokens = details.get("cached_tokens") or 0
            sample.model = sample.model or event.model or ""
            sample.nano = nano_from_usd((event.sluice or {}).get("cost_usd") or "0")
        self._done = self._done or event.type in _ENDS
        if event.type in _TEXTS:
            self._came(text=True)
        for choice in event.choices or ():
            self._came(text=bool(choice.text or any(map((choice.delta or {}).get, _TELL))))

    def _came(self, *, text: bool) -> None:
        """An event of a choice; from the first text on those without any are tokens, too."""
        sample = self._sample
        if sample.events:
            sample.gaps_s.append(self._now_s - sample.last_s)
        elif text:
            sample.first_s = self._now_s
        sample.last_s = self._now_s
        sample.events += text
        if text and sample.events == sample.leaves_after:
            self._end(LEFT)

    def _fail(self, where: str, error: Any) -> None:
        error = error if isinstance(error, dict) else {}
        code = str(error.get("code") or error.get("type") or "")[:CODE_CHARS_MAX]
        message = str(error.get("message") or "")[:MESSAGE_CHARS_MAX]
        self._end(f"{where} {code}".strip(), message)

    def _end(self, code: str, message: str = "") -> None:
        """The first reason counts."""
        assert self._ended is not None
        if not self._ended.done():
            self._sample.code, self._sample.message = code, message
            self._ended.set_result(None)


class LoadClient:
    """Sends chats to one address, over as many connections as there are requests under way."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self._tls = client_context() if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (TLS_PORT if self._tls else PLAIN_PORT)
        self._path, self._key, self._authority = parts.path + CHAT, key, parts.netloc
        self._idle: list[LoadConnection] = []

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def ask(self, body: dict[str, Any], sample: LoadSample) -> None:
        """Fill the sample; whatever goes wrong is its code."""
        request = request_bytes(self._path, self._key, body, self._authority)
        sample.sent_s = monotonic_s()
        try:
            connection = await self._connection()
        except OSError as error:
            sample.code = f"connection: {type(error).__name__}"
            return
        await connection.ask(request, sample)
        if not connection.closed:
            self._idle.append(connection)

    async def _connection(self) -> LoadConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return await LoadConnection.open_to(self._host, self._port, self._tls)
