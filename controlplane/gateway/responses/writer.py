"""Answers and events of the Responses API, in the order in which OpenAI sends them.

Items begin and end one after the other: thoughts, a message, calls. Each event has its number in
the sequence; the last one, which has the usage, follows the charge.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from controlplane.gateway.answer import Charge, Piece, TokenText
from controlplane.gateway.ask import Ask
from controlplane.gateway.openai.bodies import Charged
from controlplane.gateway.openai.render import charge_json, token_chances
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.responses.items import CUSTOM_INPUT
from controlplane.gateway.responses.request import ECHOED
from controlplane.kernel.contents.kept import KeptStatus
from controlplane.kernel.ids import id_time_ms
from inference.contract.frames import Usage
from inference.contract.parts import ToolCallDelta

# What a finish other than a whole answer is called.
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
PART_KINDS = {"message": "output_text", "reasoning": "reasoning_text"}
ID_PREFIXES = {
    "message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc",
}  # fmt: skip
_encode = msgspec.json.encode


# A whole response, with its charge once it has one; besides, it repeats what the request said.
ResponseObject = msgspec.defstruct(
    "ResponseObject",
    [
        ("id", str), ("object", Literal["response"]), ("created_at", int), ("model", str),
        ("background", bool), ("service_tier", str), ("output", list[dict[str, Any]]),
        ("status", KeptStatus | Literal["queued"]),
        ("error", dict[str, str] | None), ("incomplete_details", dict[str, str] | None),
        ("usage", dict[str, Any] | None), ("sluice", Charged | UnsetType, UNSET),
        *((name, Any) for name in ECHOED),
    ],
    kw_only=True,
)  # fmt: skip


class OpenItem:
    """The item under way: its JSON but for what its texts grow into."""

    __slots__ = ("json", "kind", "logprobs", "texts")

    def __init__(self, kind: str, json: dict[str, Any]) -> None:
        self.kind = kind
        self.json = json
        self.texts: list[str] = []
        self.logprobs: list[Any] = []

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def part(self) -> dict[str, Any]:
        """The one part of a message or of thoughts, as it is now."""
        part: dict[str, Any] = {"type": PART_KINDS[self.kind], "text": self.text}
        if self.kind == "message":
            part |= {"annotations": [], "logprobs": self.logprobs}
        return part


class ResponseWriter:
    """An `answer.Writer` of a response and its events."""

    __slots__ = (
        "_around", "_custom", "_events", "_finish", "_head", "_id", "_item", "_namespaces",
        "_number", "_output", "_request", "_token_text", "_wants_logprobs",
    )  # fmt: skip

    def __init__(self, request: bytes, ask: Ask, *, token_text: TokenText, **_: object) -> None:
        self._id = request.hex()
        self._head = {
            "id": f"resp_{self._id}",
            "object": "response",
            "created_at": id_time_ms(request) // 1000,
            "model": ask.model,
            "background": ask.echo["background"],
            "service_tier": "default",
        }
        self._request: bytes = ask.echo["request"]
        self._custom = frozenset(ask.echo["custom"])
        self._namespaces: dict[str, str] = ask.echo["namespaces"]
        self._token_text = token_text
        self._wants_logprobs = ask.sampling.logprobs is not None
        self._number = 0
        self._events: list[bytes] = []
        self._item: OpenItem | None = None
        self._output: list[dict[str, Any]] = []
        self._finish: str | None = None
        self._around: tuple[bytes, bytes] | None = None

    def chunk(self, pieces: list[Piece]) -> bytes:
        """The events that the pieces are; a response has one choice."""
        if not self._number:
            self._whole_event("response.created", self.response("in_progress"))
            # Without the request once more: what is kept for retries has a bound.
            self._whole_event("response.in_progress", _encode(self._facts("in_progress")))
        for piece in pieces:
            self._take(piece)
        events, self._events = self._events, []
        return b"".join(events)

    def next_chunk(self, choice: int, text: str) -> bytes:
        """The event of a text without logprobs, in a message that goes on."""
        item = self._item
        if item is None or item.kind != "message":
            return self.chunk([Piece(choice=choice, text=text, logprobs=[])])
        if self._around is None:
            self._around = self._text_event(item)
        item.texts.append(text)
        number, self._number = self._number, self._number + 1
        opens, ends = self._around
        return opens + _encode(text) + ends + b"%d}\n\n" % number

    def last_chunk(self, charge: Charge) -> bytes:
        """The last event, which has the whole response."""
        status = self._status()
        self._whole_event(f"response.{status}", self.response(status, charge))
        return b"".join(self._events)

    def body(self, pieces: list[Piece], charge: Charge) -> bytes:
        for piece in pieces:
            self._take(piece)
        return self.response(self._status(), charge)

    def failure(self, refusal: Refusal) -> bytes:
        """The event of a response that failed; items that it cut off are not complete."""
        # Where the charge is delayed, the last event is not to be sent.
        self._events.clear()
        self._close("incomplete")
        error = {"code": refusal.code or "server_error", "message": refusal.message}
        self._whole_event("response.failed", self.response("failed", error=error))
        return b"".join(self._events)

    def _take(self, piece: Piece) -> None:
        if piece.reasoning:
            self._append("reasoning", piece.reasoning)
        # A call that goes on does so before what is said after it.
        goes_on = bool(piece.calls) and piece.calls[0].id is None
        says = bool(piece.text or piece.logprobs)
        if says and not goes_on:
            self._append("message", piece.text, piece)
        for call in piece.calls:
            self._call(call)
        if says and goes_on:
            self._append("message", piece.text, piece)
        if piece.finish is not None:
            self._finish = piece.finish
            self._close("incomplete" if piece.finish in INCOMPLETE else "completed")

    def _append(self, kind: str, text: str, piece: Piece | None = None) -> None:
        """More of a message, or of thoughts."""
        item = self._item
        if item is None or item.kind != kind:
            more: dict[str, Any] = {"role": "assistant"} if kind == "message" else {"summary": []}
            item = self._open(kind, {"content": [], **more})
            self._event("response.content_part.added", content_index=0, part=item.part())
        item.texts.append(text)
        facts: dict[str, Any] = {}
        if kind == "message":
            facts["logprobs"] = []
            if self._wants_logprobs and piece is not None:
                facts["logprobs"] = token_chances(piece.logprobs, self._token_text)
                item.logprobs += facts["logprobs"]
        self._event(f"response.{PART_KINDS[kind]}.delta", content_index=0, delta=text, **facts)

    def _call(self, call: ToolCallDelta) -> None:
        """The first of a call opens its item; the others carry on its arguments."""
        if call.id is not None:
            name = call.name or ""
            kind = "custom_tool_call" if name in self._custom else "function_call"
            grows = {"input": ""} if name in self._custom else {"arguments": ""}
            if name in self._namespaces:
                grows["namespace"] = self._namespaces[name]
            self._open(kind, {"call_id": call.id, "name": name, **grows})
        item = self._item
        if item is None or not call.arguments:
            return
        item.texts.append(call.arguments)
        if item.kind == "function_call":
            self._event("response.function_call_arguments.delta", delta=call.arguments)

    def _open(self, kind: str, more: dict[str, Any]) -> OpenItem:
        self._close("completed")
        item_id = f"{ID_PREFIXES[kind]}_{self._id}_{len(self._output)}"
        item = OpenItem(kind, {"id": item_id, "type": kind, "status": "in_progress", **more})
        self._item, self._around = item, None
        self._event("response.output_item.added", item=item.json, item_id=None)
        return item

    def _close(self, status: str) -> None:
        item = self._item
        if item is None:
            return
        if item.kind in PART_KINDS:
            part = item.part()
            of_text = {name: part[name] for name in ("text", "logprobs") if name in part}
            self._event(f"response.{part['type']}.done", content_index=0, **of_text)
            self._event("response.content_part.done", content_index=0, part=part)
            item.json["content"] = [part]
        elif item.kind == "function_call":
            item.json["arguments"] = item.text
            self._event(
                "response.function_call_arguments.done", name=item.json["name"], arguments=item.text
            )
        else:
            item.json["input"] = text = _custom_input(item.text)
            self._event("response.custom_tool_call_input.delta", delta=text)
            self._event("response.custom_tool_call_input.done", input=text)
        item.json["status"] = status
        self._event("response.output_item.done", item=item.json, item_id=None)
        self._output.append(item.json)
        self._item = None

    def _event(self, kind: str, **facts: Any) -> None:
        """An event of the item under way; an `item_id` of None is left out."""
        item_id = self._item.json["id"] if self._item else None
        facts = {"item_id": item_id, "output_index": len(self._output), **facts}
        if facts["item_id"] is None:
            del facts["item_id"]
        self._whole_event(kind, None, facts)

    def _whole_event(
        self, kind: str, response: bytes | None, facts: dict[str, Any] | None = None
    ) -> None:
        data = _encode({"type": kind, "sequence_number": self._number, **(facts or {})})
        if response is not None:
            data = data[:-1] + b',"response":' + response + b"}"
        self._events.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))
        self._number += 1

    def _text_event(self, item: OpenItem) -> tuple[bytes, bytes]:
        """What stands around the text and the number of an event."""
        kind = "response.output_text.delta"
        facts = {
            "type": kind,
            "item_id": item.json["id"],
            "output_index": len(self._output),
            "content_index": 0,
            "logprobs": [],
            "delta": "",
        }
        data = b"event: %b\ndata: %b" % (kind.encode(), _encode(facts))
        return data.removesuffix(b'""}'), b',"sequence_number":'

    def _status(self) -> str:
        return "incomplete" if self._finish in INCOMPLETE else "completed"

    def response(
        self, status: str, charge: Charge | None = None, *, error: dict[str, str] | None = None
    ) -> bytes:
        """The response as it is now, which repeats the request."""
        facts = self._facts(status, charge, error=error)
        return _encode(facts)[:-1] + b"," + self._request + b"}"

    def _facts(
        self, status: str, charge: Charge | None = None, *, error: dict[str, str] | None = None
    ) -> dict[str, Any]:
        reason = INCOMPLETE.get(self._finish or "") if charge else None
        return {
            **self._head,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": reason} if reason else None,
            "output": self._output,
            "usage": usage_json(charge.usage) if charge else None,
            **(charge_json(charge) if charge else {}),
        }


def usage_json(usage: Usage) -> dict[str, Any]:
    """Tokens read and written; cached tokens lie inside those read, thoughts inside the others."""
    read, written = usage.prompt_tokens, usage.completion_tokens
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": read + written,
    }


def _custom_input(arguments: str) -> str:
    """The text that a custom tool is called with; of a call that was cut off, as it came."""
    try:
        given = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
    return str(given.get(CUSTOM_INPUT, "")) if isinstance(given, dict) else arguments
