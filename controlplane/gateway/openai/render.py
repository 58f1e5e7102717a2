"""Chunks and bodies of chat and text completions, in the bytes that OpenAI's clients read."""

from typing import Any

import msgspec

from controlplane.gateway.answer import UNSCORED, Charge, Piece, TokenText
from controlplane.gateway.ask import Ask
from controlplane.gateway.openai import bodies
from controlplane.gateway.openai.tools import CalledFunction, ToolCall
from controlplane.gateway.ports import Room
from controlplane.gateway.refusal import Refusal
from controlplane.kernel.ids import id_time_ms
from controlplane.kernel.money import usd_text
from inference.contract.frames import Usage
from inference.contract.parts import TokenLogprob, ToolCallDelta

DONE = b"data: [DONE]\n\n"
# JSON has no infinity; the OpenAI API writes this for what has no chance at all.
LOGPROB_MIN = -9999.0
# Of these no engine writes any.
NEVER_WRITTEN = ("audio_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens")
_encode = msgspec.json.encode


def usage_json(usage: Usage) -> bodies.CompletionUsage:
    """The `usage` object."""
    read, written = usage.prompt_tokens, usage.completion_tokens
    details = {"reasoning_tokens": usage.reasoning_tokens, **dict.fromkeys(NEVER_WRITTEN, 0)}
    of_prompt = {"cached_tokens": usage.cached_tokens, "audio_tokens": 0}
    return bodies.CompletionUsage(read, written, read + written, of_prompt, details)


def token_chances(entries: list[TokenLogprob], token_text: TokenText) -> list[bodies.TokenChance]:
    """Chosen tokens, each with the likeliest in its place."""

    def chance(token: int, logprob: float) -> bodies.TokenChance:
        text, data = token_text(token)
        return bodies.TokenChance(text, _finite(logprob), list(data))

    made = []
    for entry in entries:
        made.append(chance(entry.token, entry.logprob))
        made[-1].top_logprobs = [chance(token, logprob) for token, logprob in entry.top]
    return made


class ChatWriter:
    """Writer of `chat.completion` and its chunks."""

    id_prefix = "chatcmpl-"
    body_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    __slots__ = (
        "_around", "_head", "_head_bytes", "_opened", "_tail", "_token_text", "_usage",
        "_wants_logprobs",
    )  # fmt: skip

    def __init__(
        self,
        request: bytes,
        ask: Ask,
        *,
        fingerprint: str,
        token_text: TokenText,
        **_: object,
    ) -> None:
        self._usage = ask.include_usage
        self._wants_logprobs = ask.sampling.logprobs is not None
        self._token_text = token_text
        self._opened: set[int] = set()
        self._head = {
            "id": self.id_prefix + request.hex(),
            "object": self.chunk_object,
            "created": id_time_ms(request) // 1000,
            "model": ask.model,
            "service_tier": "default",
            "system_fingerprint": fingerprint,
        }
        self._head_bytes = b""
        if ask.stream:
            self._head_bytes = b"data: " + _encode(self._head)[:-1] + b',"choices":['
        self._tail = b',"usage":null}\n\n' if self._usage else b"}\n\n"
        self._around: dict[int, tuple[bytes, bytes]] = {}

    def chunk(self, pieces: list[Piece]) -> bytes:
        """One event per piece; a choice's first is preceded by its role."""
        head, tail = self._head_bytes, self._tail
        if pieces and pieces[0].usage is not None:
            tail = b',"usage":%b}\n\n' % _encode(usage_json(pieces[0].usage))
        events = []
        for piece in pieces:
            if piece.choice not in self._opened:
                self._opened.add(piece.choice)
                events.append(self._opening(piece.choice))
            if piece.reasoning:
                events.append(self._thinking(piece))
            if piece.text or piece.logprobs:
                events.append(self._delta(piece))
            if piece.calls:
                # One each, as clients expect: some read only the first of a chunk.
                events += [self._calling(piece.choice, call) for call in piece.calls]
            if piece.finish is not None:
                events.append(self._closing(piece))
        return b"".join(head + event + b"]" + tail for event in events if event)

    def next_chunk(self, choice: int, text: str) -> bytes:
        """The same of a text without logprobs, of a choice that has begun and goes on."""
        around = self._around.get(choice)
        if around is None:
            event = self._delta(Piece(choice=choice, text="", logprobs=[]))
            opens, ends = event.split(b'""')
            around = self._around[choice] = self._head_bytes + opens, ends + b"]" + self._tail
        return around[0] + _encode(text) + around[1]

    def last_chunk(self, charge: Charge) -> bytes:
        """The usage chunk where asked for, then `[DONE]`."""
        if not self._usage:
            return DONE
        event = {
            **self._head,
            "choices": [],
            "usage": usage_json(charge.usage),
            **charge_json(charge),
        }
        return b"data: " + _encode(event) + b"\n\n" + DONE

    def body(self, pieces: list[Piece], charge: Charge) -> bytes:
        whole = {
            **self._head,
            "object": self.body_object,
            "choices": [self._choice(piece) for piece in pieces],
            "usage": usage_json(charge.usage),
            **charge_json(charge),
        }
        return _encode(whole)

    def failure(self, refusal: Refusal) -> None:
        """The event of `OpenAIDialect` says all."""

    def _opening(self, choice: int) -> bytes:
        return (
            b'{"index":%d,"delta":{"role":"assistant","content":"","refusal":null},'
            b'"logprobs":null,"finish_reason":null}' % choice
        )

    def _delta(self, piece: Piece) -> bytes:
        return b'{"index":%d,"delta":{"content":%b},"logprobs":%b,"finish_reason":null}' % (
            piece.choice,
            _encode(piece.text),
            self._logprobs_bytes(piece),
        )

    def _thinking(self, piece: Piece) -> bytes:
        return (
            b'{"index":%d,"delta":{"reasoning_content":%b},"logprobs":null,"finish_reason":null}'
            % (piece.choice, _encode(piece.reasoning))
        )

    def _calling(self, choice: int, call: ToolCallDelta) -> bytes:
        return b'{"index":%d,"delta":{"tool_calls":[%b]},"logprobs":null,"finish_reason":null}' % (
            choice,
            _encode(_call_delta(call)),
        )

    def _closing(self, piece: Piece) -> bytes:
        return b'{"index":%d,"delta":{},"logprobs":null,"finish_reason":%b}' % (
            piece.choice,
            _encode(piece.finish),
        )

    def _choice(self, piece: Piece) -> bodies.ChatChoice | bodies.TextChoice:
        message = bodies.ChatMessage("assistant", piece.text)
        if piece.reasoning:
            message.reasoning_content = piece.reasoning
        if piece.calls:
            message.content = piece.text or None
            message.tool_calls = whole_calls(piece.calls)
        return bodies.ChatChoice(piece.choice, message, self._logprobs(piece), piece.finish)

    def _logprobs_bytes(self, piece: Piece) -> bytes:
        return _encode(self._logprobs(piece)) if self._wants_logprobs else b"null"

    def _logprobs(self, piece: Piece) -> Any:
        if not self._wants_logprobs:
            return None
        return bodies.ChatLogprobs(token_chances(piece.logprobs, self._token_text))


class CompletionWriter(ChatWriter):
    """Writer of `text_completion`: bare text, and logprobs in their older shape."""

    id_prefix = "cmpl-"
    body_object = "text_completion"
    chunk_object = "text_completion"

    __slots__ = ("_offsets",)

    def __init__(self, request: bytes, ask: Ask, **facts: Any) -> None:
        super().__init__(request, ask, **facts)
        self._offsets = [0] * ask.choices

    def _opening(self, choice: int) -> bytes:
        return b""

    def _thinking(self, piece: Piece) -> bytes:
        return b""

    def _delta(self, piece: Piece) -> bytes:
        return b'{"index":%d,"text":%b,"logprobs":%b,"finish_reason":null}' % (
            piece.choice,
            _encode(piece.text),
            self._logprobs_bytes(piece),
        )

    def _closing(self, piece: Piece) -> bytes:
        return b'{"index":%d,"text":"","logprobs":null,"finish_reason":%b}' % (
            piece.choice,
            _encode(piece.finish),
        )

    def _choice(self, piece: Piece) -> bodies.TextChoice:
        return bodies.TextChoice(piece.choice, piece.text, self._logprobs(piece), piece.finish)

    def _logprobs(self, piece: Piece) -> bodies.TextLogprobs | None:
        if not self._wants_logprobs:
            return None
        texts = [self._token_text(entry.token)[0] for entry in piece.logprobs]
        # Counted on from one chunk to the next.
        self._offsets[piece.choice] -= piece.unseen
        offsets = []
        for text in texts:
            offsets.append(max(0, self._offsets[piece.choice]))
            self._offsets[piece.choice] += len(text)
        tops = [
            None
            if entry.logprob == UNSCORED
            else {self._token_text(token)[0]: _finite(logprob) for token, logprob in entry.top}
            for entry in piece.logprobs
        ]
        chosen = [
            None if entry.logprob == UNSCORED else _finite(entry.logprob)
            for entry in piece.logprobs
        ]
        return bodies.TextLogprobs(texts, chosen, tops, offsets)


def _call_delta(call: ToolCallDelta) -> dict[str, object]:
    """The first of a call names it; the others carry on its arguments."""
    if call.id is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"index": call.index, "id": call.id, "type": "function", "function": function}


def whole_calls(deltas: list[ToolCallDelta]) -> list[ToolCall]:
    """The calls that their pieces make."""
    arguments: dict[int, str] = {}
    for delta in deltas:
        arguments[delta.index] = arguments.get(delta.index, "") + delta.arguments
    return [
        ToolCall(delta.id, "function", CalledFunction(delta.name or "", arguments[delta.index]))
        for delta in deltas
        if delta.id is not None
    ]


def _finite(logprob: float) -> float:
    """Also for NaN, which no comparison finds greater."""
    return logprob if logprob > LOGPROB_MIN else LOGPROB_MIN


def charge_json(charge: Charge) -> dict[str, bodies.Charged]:
    """Our own addition beside `usage`: the exact charge, as a decimal text."""
    return {"sluice": {"cost_usd": usd_text(charge.amount_nano)}}


class OpenAIDialect:
    """A `shape.Dialect`: the error of `Refusal` as it is."""

    def lines(self, request: str, rooms: tuple[Room, ...]) -> list[str]:
        return []

    def error_body(self, refusal: Refusal, request: str) -> bytes:
        return msgspec.json.encode(refusal.body)

    def error_event(self, refusal: Refusal, request: str) -> bytes:
        """An error, and no end mark after it."""
        return b"data: " + msgspec.json.encode(refusal.body) + b"\n\n"
