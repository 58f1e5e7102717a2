"""Events and bodies of messages, errors and limits, in the bytes that Anthropic's clients read."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from controlplane.gateway.answer import Charge, Piece
from controlplane.gateway.anthropic.messages import TextBlock, ThinkingBlock, ToolUseBlock
from controlplane.gateway.ask import Ask
from controlplane.gateway.openai.bodies import Charged
from controlplane.gateway.openai.render import charge_json, whole_calls
from controlplane.gateway.ports import Room
from controlplane.gateway.refusal import Refusal
from inference.contract.frames import Usage
from inference.contract.parts import ToolCallDelta

_KINDS = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    408: "timeout_error", 413: "request_too_large", 429: "rate_limit_error",
    500: "api_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip
# Clients send thoughts back only with a signature; nothing verifies it.
SIGNATURE = "sluice"
AFTER = b"}}\n\n"
DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":%b'
_DELTAS = {
    TextBlock: b'{"type":"text_delta","text":',
    ThinkingBlock: b'{"type":"thinking_delta","thinking":',
    ToolUseBlock: b'{"type":"input_json_delta","partial_json":',
}
_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_encode = msgspec.json.encode

OutputBlock = ThinkingBlock | TextBlock | ToolUseBlock


class AnthropicDialect:
    """A `shape.Dialect`: kinds of errors follow the status, with `code` and `param` as they are."""

    def lines(self, request: str, rooms: tuple[Room, ...]) -> list[str]:
        lines = [f"request-id: {request}"]
        for room in rooms:
            if room.dimension in ("requests", "tokens"):
                reset = datetime.now(UTC) + timedelta(seconds=room.reset_s)
                head = f"anthropic-ratelimit-{room.dimension}"
                lines.append(f"{head}-limit: {room.limit}")
                lines.append(f"{head}-remaining: {room.remaining}")
                lines.append(f"{head}-reset: {reset:%Y-%m-%dT%H:%M:%SZ}")
        return lines

    def error_body(self, refusal: Refusal, request: str) -> bytes:
        facts: dict[str, object] = {**refusal.body["error"]}
        facts["type"] = _KINDS.get(refusal.status, "invalid_request_error")
        if refusal.code == "context_length_exceeded":
            # By these words coding agents know that they have to shorten a talk.
            facts["message"] = f"prompt is too long: {refusal.message}"
        return msgspec.json.encode({"type": "error", "error": facts, "request_id": request})

    def error_event(self, refusal: Refusal, request: str) -> bytes:
        """An error, and no `message_stop` after it."""
        return b"event: error\ndata: " + self.error_body(refusal, request) + b"\n\n"


class MessageUsage(msgspec.Struct):
    """Tokens read and written; those read from a cache are not among `input_tokens`."""

    input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: dict[str, int]
    cache_creation_input_tokens: int = 0
    service_tier: Literal["standard"] = "standard"


class AnsweredMessage(msgspec.Struct, tag="message", tag_field="type", kw_only=True):
    """One answer."""

    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[OutputBlock]
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: MessageUsage
    sluice: Charged | UnsetType = UNSET


class MessageWriter:
    """Writer of `message` and its events: one block after the other, the last one under way."""

    __slots__ = ("_before", "_begun", "_block", "_end", "_index", "_message")

    def __init__(self, request: bytes, ask: Ask, *, prompt_tokens: int = 0, **_: object) -> None:
        # As far as it is known at the start; the last event has the whole of it.
        usage, name = MessageUsage(prompt_tokens, 0, 0, {"thinking_tokens": 0}), request.hex()
        self._message = AnsweredMessage(id=f"msg_{name}", model=ask.model, content=[], usage=usage)
        self._begun, self._index = False, -1
        self._block: type[OutputBlock] | None = None
        self._before = b""
        self._end: dict[str, str | None] = {}

    def chunk(self, pieces: list[Piece]) -> bytes:
        """Events of the pieces of the one choice; before the first what begins the message."""
        return b"".join([event for piece in pieces for event in self._events(piece)])

    def next_chunk(self, choice: int, text: str) -> bytes:
        """The same of a text, mostly within its block."""
        if self._block is TextBlock:
            return self._before + _encode(text) + AFTER
        return self.chunk([Piece(choice=choice, text=text, logprobs=[])])

    def last_chunk(self, charge: Charge) -> bytes:
        """Why it ended, the whole usage and the end mark."""
        told = {"delta": self._end, "usage": _usage(charge.usage), **charge_json(charge)}
        return _event("message_delta", **told) + _event("message_stop")

    def body(self, pieces: list[Piece], charge: Charge) -> bytes:
        (piece,) = pieces
        told = {"content": _content(piece), "usage": _usage(charge.usage), **charge_json(charge)}
        return _encode(msgspec.structs.replace(self._message, **told, **_end(piece)))

    def failure(self, refusal: Refusal) -> None:
        """The event of `AnthropicDialect` says all."""

    def _events(self, piece: Piece) -> Iterator[bytes]:
        if not self._begun:
            self._begun = True
            yield _event("message_start", message=self._message)
        if piece.reasoning:
            yield self._more(ThinkingBlock(""), piece.reasoning)
        # A call that goes on does so before its block is closed.
        goes_on = bool(piece.calls) and piece.calls[0].id is None
        if piece.text and not goes_on:
            yield self._more(TextBlock(""), piece.text)
        for call in piece.calls:
            yield self._call(call)
        if piece.text and goes_on:
            yield self._more(TextBlock(""), piece.text)
        if piece.finish is not None:
            yield self._close()
            self._end = _end(piece)

    def _more(self, block: OutputBlock, text: str) -> bytes:
        opening = b"" if self._block is type(block) else self._open(block)
        return opening + self._before + _encode(text) + AFTER

    def _call(self, call: ToolCallDelta) -> bytes:
        opening = b""
        if call.id is not None:
            opening = self._open(ToolUseBlock(call.id, call.name or "", {}))
        return opening + self._before + _encode(call.arguments) + AFTER

    def _open(self, block: OutputBlock) -> bytes:
        closing = self._close()
        self._index += 1
        self._block = type(block)
        self._before = DELTA % (self._index, _DELTAS[self._block])
        return closing + _event("content_block_start", index=self._index, content_block=block)

    def _close(self) -> bytes:
        block, self._block = self._block, None
        end = b"" if block is None else _event("content_block_stop", index=self._index)
        if block is ThinkingBlock:
            signed = {"type": "signature_delta", "signature": SIGNATURE}
            return _event("content_block_delta", index=self._index, delta=signed) + end
        return end


def _usage(usage: Usage) -> MessageUsage:
    cached, thought = usage.cached_tokens, {"thinking_tokens": usage.reasoning_tokens}
    return MessageUsage(usage.prompt_tokens - cached, cached, usage.completion_tokens, thought)


def _event(kind: str, **fields: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind, **fields}))


def _end(piece: Piece) -> dict[str, str | None]:
    if piece.finish == "stop" and piece.stop is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": piece.stop}
    return {"stop_reason": _REASONS.get(piece.finish or "", "end_turn"), "stop_sequence": None}


def _content(piece: Piece) -> list[OutputBlock]:
    """Thoughts, text and calls, but for one whose arguments were cut off."""
    blocks: list[OutputBlock] = []
    if piece.reasoning:
        blocks.append(ThinkingBlock(piece.reasoning, SIGNATURE))
    if piece.text:
        blocks.append(TextBlock(piece.text))
    for call in whole_calls(piece.calls):
        with suppress(msgspec.DecodeError):
            given = msgspec.json.decode(call.function.arguments, type=dict)
            blocks.append(ToolUseBlock(call.id, call.function.name, given))
    return blocks
