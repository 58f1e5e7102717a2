"""Anthropic's Messages API as a server: chats written in its terms, its events read as ours.

Source: its public reference (version 2023-06-01). Its counts are exclusive: input, cache reads and
cache writes are summed to what others call prompt tokens.
"""

import base64
from collections.abc import Iterator
from typing import Any

import msgspec

from inference.contract.frames import Job
from inference.engines.remote.events import (
    Choice,
    Chunk,
    Delta,
    Details,
    Function,
    ReportedUsage,
    ToolCall,
    UpstreamBroken,
)
from inference.errors import JobRefused

PATH = "/messages"
# What `reasoning_effort` becomes: tokens of thought, within the bound of the answer, which must be
# more than the least budget that the API takes.
BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 24_576, "xhigh": 32_768}
BUDGET_MIN = 1024
FINISHES = {
    "end_turn": "stop", "stop_sequence": "stop", "pause_turn": "stop", "max_tokens": "length",
    "model_context_window_exceeded": "length", "tool_use": "tool_calls",
    "refusal": "content_filter",
}  # fmt: skip
SYSTEM = ("system", "developer")
# Fields of a chat that it has no word for; those that merely hint are left out.
REFUSED = ("response_format", "modalities", "audio", "prediction")


def messages_body(chat: dict[str, Any], job: Job, model: str) -> dict[str, Any]:
    """The request; raises `JobRefused` for what the API has no word for."""
    for field in REFUSED:
        asked = chat.get(field)
        if asked and asked != {"type": "text"} and asked != ["text"]:
            raise JobRefused("bad_request", f"'{field}' is not supported by this model's provider")
    if "messages" not in chat:
        raise JobRefused("bad_request", "'prompt' is not supported by this model's provider")
    system = [turn for turn in chat["messages"] if turn["role"] in SYSTEM]
    turns = [turn for turn in chat["messages"] if turn["role"] not in SYSTEM]
    if not turns:
        raise JobRefused("bad_request", "'messages' need a turn beside those of the system")
    sampling = job.sampling
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": sampling.max_tokens,
        "stream": True,
        "messages": _turns(turns, iter([each.jpeg for each in job.pictures])),
    }
    if system:
        body["system"] = "\n\n".join(_text(turn["content"]) for turn in system)
    if stop := chat.get("stop"):
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if tools := chat.get("tools"):
        body["tools"] = [_tool(each["function"]) for each in tools]
        body["tool_choice"] = _choice(chat)
    if thinks := _thinking(chat, turns, sampling.max_tokens):
        return body | thinks
    if sampling.temperature != 1.0:
        body["temperature"] = min(sampling.temperature, 1.0)
    elif sampling.top_p != 1.0:
        # It takes one of both.
        body["top_p"] = sampling.top_p
    if sampling.top_k:
        body["top_k"] = sampling.top_k
    return body


def _thinking(chat: dict[str, Any], turns: list[dict[str, Any]], most: int) -> dict[str, Any]:
    """Nothing where it may not think: it would want its own signed thoughts behind a tool's result,
    and a forced call excludes them.
    """
    budget = min(BUDGETS.get(chat.get("reasoning_effort") or "", 0), most - 1)
    forced = chat.get("tool_choice") not in (None, "auto", "none")
    if budget < BUDGET_MIN or forced or turns[-1]["role"] == "tool":
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _turns(turns: list[dict[str, Any]], shown: Iterator[bytes]) -> list[dict[str, Any]]:
    """Roles in turns, as the API wants them: results of tools are what the user says next."""
    made: list[dict[str, Any]] = []
    for turn in turns:
        role = "assistant" if turn["role"] == "assistant" else "user"
        if turn["role"] == "tool":
            blocks = [
                {"type": "tool_result", "tool_use_id": turn["tool_call_id"],
                 "content": _text(turn["content"])}
            ]  # fmt: skip
        else:
            blocks = _blocks(turn, shown)
        if made and made[-1]["role"] == role:
            made[-1]["content"] += blocks
        elif blocks:
            made.append({"role": role, "content": blocks})
    return made


def _blocks(turn: dict[str, Any], shown: Iterator[bytes]) -> list[dict[str, Any]]:
    content = turn["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if part["type"] == "image_url":
            data = base64.b64encode(next(shown)).decode()
            source = {"type": "base64", "media_type": "image/jpeg", "data": data}
            blocks.append({"type": "image", "source": source})
        elif part.get("text"):
            blocks.append({"type": "text", "text": part["text"]})
    for call in turn.get("tool_calls") or ():
        told = call["function"]
        given = msgspec.json.decode(told["arguments"] or "{}")
        blocks.append({"type": "tool_use", "id": call["id"], "name": told["name"], "input": given})
    return blocks


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or ())


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    told = {"description": function["description"]} if function.get("description") else {}
    return {"name": function["name"], **told, "input_schema": schema}


def _choice(chat: dict[str, Any]) -> dict[str, Any]:
    wanted = chat.get("tool_choice") or "auto"
    if isinstance(wanted, dict):
        choice: dict[str, Any] = {"type": "tool", "name": wanted["function"]["name"]}
    else:
        choice = {"type": {"required": "any"}.get(wanted, wanted)}
    if chat.get("parallel_tool_calls") is False and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    return choice


class _Counts(msgspec.Struct):
    """Tokens, each sort by itself; None where an event does not say."""

    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens: int | None = None


class _Message(msgspec.Struct):
    usage: _Counts = msgspec.field(default_factory=_Counts)


class _Block(msgspec.Struct):
    """What begins, or is added to: fields by its `type`."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    message: _Message = msgspec.field(default_factory=_Message)
    content_block: _Block = msgspec.field(default_factory=_Block)
    delta: _Block = msgspec.field(default_factory=_Block)
    usage: _Counts | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Event)


class MessagesReader:
    """Reads the events of one answer."""

    def __init__(self) -> None:
        self._counts = _Counts(0, 0, 0, 0)
        # Places of the blocks that are calls, in the order of calls.
        self._calls: dict[int, int] = {}
        self._bare: set[int] = set()

    def read(self, data: bytes) -> Chunk | None:
        """What an event adds; None for the last. Raises `UpstreamBroken`."""
        try:
            event = _decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamBroken(f"an event that cannot be read: {error}") from error
        if event.type == "message_stop":
            return None
        if event.type == "error":
            return Chunk(error=event.error or {})
        if event.type == "message_start":
            self._count(event.message.usage)
            # Of the answer it says nothing yet.
            self._counts.output_tokens = 0
            return Chunk(usage=self._usage())
        if event.type == "message_delta":
            self._count(event.usage or _Counts())
            reason = event.delta.stop_reason
            ends = [Choice(finish_reason=FINISHES.get(reason, "stop"))] if reason else []
            return Chunk(choices=ends, usage=self._usage())
        if event.type == "content_block_start":
            return self._begun(event.index, event.content_block)
        if event.type == "content_block_delta":
            return self._added(event.index, event.delta)
        if event.type == "content_block_stop" and event.index in self._bare:
            # Nothing was said of its arguments, which are an object all the same.
            return self._argued(event.index, "{}")
        return Chunk()

    def _begun(self, index: int, block: _Block) -> Chunk:
        if block.type != "tool_use":
            return _said(Delta(content=block.text or None, reasoning=block.thinking or None))
        place = self._calls[index] = len(self._calls)
        self._bare.add(index)
        call = ToolCall(place, block.id, Function(block.name, ""))
        return _said(Delta(tool_calls=[call]))

    def _added(self, index: int, delta: _Block) -> Chunk:
        if delta.type == "input_json_delta" and index in self._calls:
            return self._argued(index, delta.partial_json)
        return _said(Delta(content=delta.text or None, reasoning=delta.thinking or None))

    def _argued(self, index: int, arguments: str) -> Chunk:
        if arguments:
            self._bare.discard(index)
        call = ToolCall(self._calls[index], None, Function(None, arguments))
        return _said(Delta(tool_calls=[call]))

    def _count(self, told: _Counts) -> None:
        for field in told.__struct_fields__:
            value = getattr(told, field)
            if value is not None:
                setattr(self._counts, field, max(0, value))

    def _usage(self) -> ReportedUsage:
        read = self._counts.cache_read_input_tokens or 0
        written = self._counts.cache_creation_input_tokens or 0
        return ReportedUsage(
            prompt_tokens=(self._counts.input_tokens or 0) + read + written,
            completion_tokens=self._counts.output_tokens or 0,
            prompt_tokens_details=Details(cached_tokens=read),
        )


def _said(delta: Delta) -> Chunk:
    return Chunk(choices=[Choice(delta=delta)])
