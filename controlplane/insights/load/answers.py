"""One request and its streamed answer, with the moments at which it told something."""

import asyncio
from array import array
from dataclasses import dataclass, field
from typing import Any

import httpx2
import msgspec

from controlplane.kernel.clock import monotonic_s

CHAT = "/chat/completions"
CONNECT_S_MAX, ANSWER_S_MAX = 10.0, 120.0
EVENT_BYTES_MAX = 4 * 2**20
ERROR_BYTES_MAX = 64 * 1024
CODE_CHARS_MAX, MESSAGE_CHARS_MAX = 60, 120
OK_STATUS = 200
OK, LEFT, UNFINISHED = "ok", "left", "unfinished"
_EVENT, _DONE = b"data:", b"[DONE]"


@dataclass
class LoadSample:
    """A request; moments on the monotonic clock in seconds, 0 for those that never came.

    `gaps_s` are the times between events with text, `last_s` is that of the last event of a choice,
    `code` how it ended: `ok`, `left` on purpose, `unfinished`, or what went wrong; `message` is
    what the server said of that.
    """

    kind: str
    planned_s: float
    sent_s: float = 0.0
    first_s: float = 0.0
    text_s: float = 0.0
    last_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    events: int = 0
    code: str = UNFINISHED
    message: str = ""
    gaps_s: "array[float]" = field(default_factory=lambda: array("d"))


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_events = msgspec.json.Decoder(_Event)


class _Failed(Exception):
    """The answer is none; told are a code and, where the server gave one, a message."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(code)
        self.code, self.message = code.strip(), message


@dataclass(frozen=True)
class Manners:
    """How an answer is read: it is left after so many events with text, and after each part that
    is read the reader pauses, in seconds.
    """

    leaves_after: int | None = None
    pause_s: float = 0.0


PATIENT = Manners()


class LoadClient:
    """Sends requests to one address over connections that are kept."""

    def __init__(self, url: str, key: str, connections: int) -> None:
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        # No proxy of the environment, and no redirect: only the address that was given.
        self._client = httpx2.AsyncClient(
            headers=headers,
            limits=limits,
            timeout=httpx2.Timeout(ANSWER_S_MAX, connect=CONNECT_S_MAX),
            trust_env=False,
        )
        self._url = url + CHAT

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(
        self, body: dict[str, Any], sample: LoadSample, manners: Manners = PATIENT
    ) -> None:
        """Fill the sample; whatever goes wrong is its code."""
        data = msgspec.json.encode(body)
        sample.sent_s = monotonic_s()
        try:
            async with (
                asyncio.timeout(ANSWER_S_MAX),
                self._client.stream("POST", self._url, content=data) as answer,
            ):
                if answer.status_code != OK_STATUS:
                    await _refuse(answer)
                sample.code = await _read(answer, sample, manners)
        except TimeoutError:
            sample.code = "timed out"
        except httpx2.HTTPError as error:
            sample.code = f"connection: {type(error).__name__}"
        except _Failed as error:
            sample.code, sample.message = error.code, error.message
        sample.output_tokens = sample.output_tokens or sample.events


async def _read(answer: httpx2.Response, sample: LoadSample, manners: Manners) -> str:
    rest = b""
    async for part in answer.aiter_raw():
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > EVENT_BYTES_MAX:
            raise _Failed("stream: an event is too long")
        for line in lines:
            if not line.startswith(_EVENT):
                continue
            data = line[len(_EVENT) :].strip()
            if data == _DONE:
                return OK
            _note(data, sample)
            if manners.leaves_after is not None and sample.events >= manners.leaves_after:
                return LEFT
        if manners.pause_s:
            await asyncio.sleep(manners.pause_s)
    raise _Failed("stream: cut off")


def _note(data: bytes, sample: LoadSample) -> None:
    now = monotonic_s()
    try:
        event = _events.decode(data)
    except msgspec.MsgspecError as error:
        raise _Failed("stream: not an event") from error
    if event.error is not None:
        raise _told("stream:", event.error)
    if usage := event.usage:
        sample.prompt_tokens, sample.output_tokens = usage.prompt_tokens, usage.completion_tokens
        details = usage.prompt_tokens_details
        sample.cached_tokens = (details and details.cached_tokens) or 0
    for choice in event.choices or ():
        sample.last_s = now
        delta = choice.delta
        if delta and (
            delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls
        ):
            if sample.events:
                sample.gaps_s.append(now - sample.text_s)
            else:
                sample.first_s = now
            sample.text_s = now
            sample.events += 1


async def _refuse(answer: httpx2.Response) -> None:
    body = b""
    async for part in answer.aiter_raw():
        body += part
        if len(body) > ERROR_BYTES_MAX:
            break
    try:
        told = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        told = None
    error = told.get("error", told) if isinstance(told, dict) else None
    raise _told(str(answer.status_code), error)


def _told(where: str, error: Any) -> _Failed:
    if not isinstance(error, dict):
        return _Failed(where)
    code = str(error.get("code") or error.get("type") or "")[:CODE_CHARS_MAX]
    return _Failed(f"{where} {code}", str(error.get("message") or "")[:MESSAGE_CHARS_MAX])
