"""Tools and formats: what is asked for, and calls in the text that comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.recorded.case import CHAT, TEXT, Case, post
from tests.recorded.engine import scripted
from tests.recorded.models import ACTOR, ECHO, TEXTER

CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "nights": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
BOOK = {"type": "function", "function": {"name": "book", "description": "Book a room.",
                                         "parameters": CITY, "strict": True}}  # fmt: skip
NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = [BOOK, NOW]
CALL = '<tool_call>\n{"name": "book", "arguments": {"city": "Rome", "nights": 2}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
SPACED = '<tool_call> { "name" : "book" , "arguments" : {"city": "Os\\"lo{}"} } </tool_call>'
SAID: tuple[tuple[str, list[str], str], ...] = (
    ("one", [CALL], "stop"),
    ("two", [f"{CALL}\n{OTHER}"], "stop"),
    ("text", ["There is nothing to call."], "stop"),
    ("after-text", [f"Let me see. {CALL}"], "stop"),
    ("cut", [CALL[:60]], "length"),
    ("spaced", [SPACED], "stop"),
    ("no-call", ["<tool_call> is a word here, and <tool_ca"], "stop"),
    ("unicode", [CALL.replace("Rome", "東京 🗼")], "stop"),
)
CHOICES: tuple[Any, ...] = (
    None, "auto", "required", "none", {"type": "function", "function": {"name": "book"}},
)  # fmt: skip


def formats() -> Iterator[Case]:
    """All of them."""
    yield from _calls()
    yield from _talks()
    yield from _formats()
    yield from _wrong()


def _ask(script: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Book a room in Rome. {script}"}]
    return {"model": ACTOR, "messages": messages, "max_tokens": 200, **more}


def _calls() -> Iterator[Case]:
    for name, said, finish in SAID:
        script = scripted(say=said, finish=finish)
        for streams in (False, True):
            body = _ask(script, tools=TOOLS, stream=streams)
            yield Case(f"tools-{name}-{streams}", "tools", (post(CHAT, body),))
    for number, choice in enumerate(CHOICES):
        for streams in (False, True):
            body = _ask(scripted(say=[CALL]), tools=TOOLS, tool_choice=choice, stream=streams)
            yield Case(f"choice-{number}-{streams}", "tools", (post(CHAT, body),))
    steps = ["Well: ", CALL[:60], CALL[60:]]
    case = Case("calls-in-steps", "tools", ())
    body = _ask(scripted(say=steps, case=case.name), tools=TOOLS, stream=True)
    yield replace(case, pieces=(post(CHAT, body),), told=True)
    body = _ask(scripted(say=[CALL]), tools=TOOLS, parallel_tool_calls=False, n=2)
    yield Case("calls-of-two-choices", "tools", (post(CHAT, body),))
    body = _ask(scripted(say=[CALL]), tools=TOOLS, stop="nights", logprobs=True)
    yield Case("calls-stopped", "tools", (post(CHAT, body),))
    calls = [{"index": 0, "id": "server-1", "name": "book", "arguments": '{"city": "Oslo"}'}]
    for streams in (False, True):
        case = Case(f"server-calls-{streams}", "tools", ())
        parts: list[dict[str, Any]] = [{"text": "Fine. "}, {"calls": calls}]
        script = scripted(say=parts, finish="tool_calls", case=case.name if streams else "")
        asked = [{"role": "user", "content": script}]
        body = {"model": TEXTER, "messages": asked, "tools": TOOLS, "stream": streams}
        yield replace(case, pieces=(post(CHAT, body),), told=True)


def _talks() -> Iterator[Case]:
    call = {"id": "call_1", "type": "function",
            "function": {"name": "book", "arguments": '{"city": "Rome"}'}}  # fmt: skip
    talk = [
        {"role": "user", "content": "Book a room."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": '{"booked": true}'},
        {"role": "assistant", "content": "Done.", "reasoning_content": "It was easy."},
        {"role": "user", "content": "Thanks! 🙏", "name": "alice"},
    ]
    for name, model in (("echo", ECHO), ("actor", ACTOR), ("server", TEXTER)):
        body = {"model": model, "messages": talk, "max_tokens": 12}
        yield Case(f"talk-of-tools-{name}", "tools", (post(CHAT, body),))
        yield Case(f"talk-with-tools-{name}", "tools", (post(CHAT, {**body, "tools": TOOLS}),))
    refused = [{"role": "user", "content": "x"}, {"role": "assistant", "refusal": "No."},
               {"role": "user", "content": "y"}]  # fmt: skip
    yield Case("talk-of-refusal", "tools", (post(CHAT, {"model": ACTOR, "messages": refused}),))


def _formats() -> Iterator[Case]:
    text = json.dumps({"city": "Rome", "nights": 3})
    script = scripted(say=[text])
    schema = {"name": "stay", "schema": CITY}
    wanted: tuple[dict[str, Any], ...] = (
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": schema}},
        {"response_format": {"type": "json_schema", "json_schema": {**schema, "strict": True}}},
        {"structured_outputs": {"json": CITY}},
        {"structured_outputs": {"json_object": True}},
        {"structured_outputs": {"regex": r'\{"city": "[A-Z][a-z]+", "nights": \d\}'}},
        {"structured_outputs": {"choice": ["Rome", "Oslo", "東京"]}},
        {"structured_outputs": {"grammar": 'start: "{" /[^}]*/ "}"'}},
    )
    for number, fields in enumerate(wanted):
        for streams in (False, True):
            body = _ask(script, **fields, stream=streams)
            yield Case(f"format-{number}-{streams}", "formats", (post(CHAT, body),))
        if "structured_outputs" in fields:
            body = {"model": ACTOR, "prompt": script, "max_tokens": 40, **fields}
            yield Case(f"format-{number}-text", "formats", (post(TEXT, body),))
    body = _ask(script, **wanted[2], tools=TOOLS)
    yield Case("format-beside-tools", "formats", (post(CHAT, body),))
    body = {**_ask(script, **wanted[1]), "model": TEXTER}
    yield Case("format-of-server", "formats", (post(CHAT, body),))
    body = {**_ask("", **wanted[2]), "model": ECHO}
    yield Case("format-of-none", "formats", (post(CHAT, body),))


def _wrong() -> Iterator[Case]:
    def schema(**keywords: Any) -> dict[str, Any]:
        format_ = {"name": "x", "schema": keywords}
        return {"response_format": {"type": "json_schema", "json_schema": format_}}

    deep: dict[str, Any] = {}
    for _ in range(30):
        deep = {"type": "array", "items": deep}
    faults: tuple[dict[str, Any], ...] = (
        schema(uniqueItems=True), schema(properties=[]), schema(items=5), schema(**deep),
        schema(**{"$ref": "https://example.org"}),
        {"response_format": {"type": "yaml"}}, {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_object"}, "structured_outputs": {"json_object": True}},
        {"structured_outputs": {}}, {"structured_outputs": {"regex": ""}},
        {"structured_outputs": {"regex": "a", "choice": ["b"]}},
        {"structured_outputs": {"grammar": "start: " + "x" * 70_000}},
        {"tools": []}, {"tools": [BOOK, BOOK]}, {"tool_choice": "auto"},
        {"parallel_tool_calls": True}, {"tools": TOOLS, "tool_choice": "any"},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "none"}}},
        {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        {"tools": [{"type": "function",
                    "function": {"name": "x", "parameters": {"type": "array"}}}]},
        {"tools": TOOLS, "structured_outputs": {"regex": "a"}},
    )  # fmt: skip
    for number, fields in enumerate(faults):
        yield Case(f"wrong-format-{number:02}", "formats", (post(CHAT, _ask("x", **fields)),))
    for code, message in (
        ("bad_grammar", "it is too complex"), ("bad_request", "the server says no"),
        ("too_long", "no room"), ("bad_job", "a fault of the gateway"),
    ):  # fmt: skip
        body = _ask(scripted(refuse=[code, message]), tools=TOOLS)
        yield Case(f"node-refuses-{code}", "node", (post(CHAT, body),))
