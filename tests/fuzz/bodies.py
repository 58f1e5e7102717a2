"""Bodies of `/v1`: valid ones of every route, and mutations of their structure and text."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from controlplane.composed.demo import EMBED_MODEL, MODEL

Json = Any
DEPTHS = (8, 40, 600)
MANY = 3_000
LONG_CHARS = 60_000
# One of so many bodies is larger than any may be.
HUGE_ONE_IN = 150
HUGE_CHARS = 9 * 2**20
MUTATIONS_MAX = 3
TEXT_ONE_IN = 6

TOOL = {
    "type": "function",
    "function": {
        "name": "book",
        "description": "Book a room",
        "parameters": {
            "type": "object",
            "properties": {"nights": {"type": "integer"}},
            "required": ["nights"],
        },
    },
}
CALL = {"id": "c1", "type": "function", "function": {"name": "book", "arguments": "{}"}}
CHAT: dict[str, Json] = {
    "model": MODEL.name,
    "messages": [
        {"role": "system", "content": "You book hotels."},
        {"role": "user", "content": [{"type": "text", "text": "A room, please."}], "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "done", "tool_call_id": "c1"},
        {"role": "user", "content": "Thanks"},
    ],
    "max_tokens": 4,
    "temperature": 0.5,
    "top_p": 0.9,
    "seed": 7,
    "stop": ["x", "y"],
    "n": 2,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "logit_bias": {"5": 1.5},
    "user": "u-1",
    "metadata": {"a": "b"},
    "stream": True,
    "stream_options": {"include_usage": True},
}
PLAIN: dict[str, Json] = {
    "model": MODEL.name,
    "messages": [{"role": "user", "content": "Good morning"}],
    "max_completion_tokens": 3,
}
TALK: list[Json] = [
    {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
]
MESSAGE: dict[str, Json] = {
    "model": MODEL.name,
    "max_tokens": 3,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": TALK,
    "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {"a": {}}}}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "stop_sequences": ["END"],
    "temperature": 0.5,
    "metadata": {"user_id": "u"},
    "stream": True,
}
VALID: tuple[tuple[str, dict[str, Json]], ...] = (
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", PLAIN),
    ("/v1/chat/completions", {**PLAIN, "tools": [TOOL], "tool_choice": "auto"}),
    ("/v1/chat/completions", {**PLAIN, "response_format": {"type": "json_object"}}),
    (
        "/v1/chat/completions",
        {
            **PLAIN,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "s", "schema": TOOL["function"]["parameters"]},  # type: ignore[index]
            },
        },
    ),
    ("/v1/chat/completions", {**PLAIN, "logprobs": True, "top_logprobs": 2}),
    ("/v1/chat/completions", {**PLAIN, "prompt": {"id": "greeting", "variables": {"a": 1}}}),
    (
        "/v1/chat/completions",
        {
            **PLAIN,
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]},
                {"role": "assistant", "content": None, "annotations": [], "tool_calls": []},
                {"role": "user", "content": "Thanks", "name": None},
            ],
            "store": True,
            "prompt_cache_key": "u-1",
            "guided_json": TOOL["function"]["parameters"],  # type: ignore[index]
            "tools": [],
            "num_ctx": 4096,
        },
    ),
    ("/v1/messages", MESSAGE),
    (
        "/v1/responses",
        {
            "model": MODEL.name,
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
            "max_output_tokens": 3,
            "stream": True,
            "tools": [{"type": "function", "name": "f"}, {"type": "web_search"}],
            "reasoning": {"effort": "low"},
        },
    ),
    ("/v1/messages/count_tokens", MESSAGE),
    ("/v1/preflight", PLAIN),
    ("/v1/completions", {"model": MODEL.name, "prompt": "Once upon", "max_tokens": 3}),
    ("/v1/completions", {"model": MODEL.name, "prompt": [5, 6, 7], "n": 2, "stream": True}),
    ("/v1/embeddings", {"model": EMBED_MODEL.name, "input": ["one", "two"], "dimensions": 64}),
    ("/v1/embeddings", {"model": EMBED_MODEL.name, "input": [[1, 2], [3]]}),
)  # fmt: skip


def nested(depth: int) -> Json:
    """Lists and objects in turns, so deep."""
    made: Json = 1
    for level in range(depth):
        made = [made] if level % 2 else {"a": made}
    return made


def value(chance: random.Random) -> Json:
    """Something that a field seldom holds."""
    return chance.choice((
        None, True, False, 0, -1, 1, 2, 0.5, -0.5, -0.0, 1e308, 5e-324, 2**31, 2**53 + 1, 2**63,
        2**64, -(2**63), 10**40, "", " ", "0", "1e3", "\0", "\ud800", "\udfff\ud800", "é\u0301",
        "\u202e\u2066", "🦊" * 9, "null", "x" * 65, "x" * LONG_CHARS, [], {}, [[]], [None],
        {"": None}, list(range(MANY)), {str(n): n for n in range(MANY)}, "text", "user",
        [float(chance.randrange(100))], {"type": chance.choice(("text", "image_url", "file", ""))},
        nested(chance.choice(DEPTHS)),
    ))  # fmt: skip


def places(body: Json) -> Iterator[tuple[Json, Any]]:
    """Every container with each of its keys or indices."""
    stack = [body]
    while stack:
        at = stack.pop()
        pairs = at.items() if isinstance(at, dict) else enumerate(at)
        for place, inner in pairs:
            yield at, place
            if isinstance(inner, dict | list) and inner:
                stack.append(inner)


def _replace(at: Json, place: Any, chance: random.Random) -> None:
    at[place] = value(chance)


def _leave_out(at: Json, place: Any, chance: random.Random) -> None:
    del at[place]


def _stretch(at: Json, place: Any, chance: random.Random) -> None:
    inner = at[place]
    times = chance.choice((2, 70, MANY))
    if isinstance(inner, str | list) and len(inner) < MANY:
        at[place] = inner * times
    elif isinstance(inner, int | float):
        at[place] = inner * times * chance.choice((1, -1))


def _wrap(at: Json, place: Any, chance: random.Random) -> None:
    inner = at[place]
    at[place] = chance.choice(([inner], {"value": inner}, [inner, inner], str(inner)))


def _name_more(at: Json, place: Any, chance: random.Random) -> None:
    if isinstance(at, dict):
        name = chance.choice(
            ("", "extra", "__proto__", "n ", "Stream", "\0", "store", "tools", "guided_regex")
        )
        at[name] = value(chance)


def _swap(at: Json, place: Any, chance: random.Random) -> None:
    other = chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
    at[place], at[other] = at[other], at[place]


STRUCTURE: tuple[Callable[[Json, Any, random.Random], None], ...] = (
    _replace, _replace, _replace, _leave_out, _stretch, _wrap, _name_more, _swap,
)  # fmt: skip


def mutate_text(text: bytes, chance: random.Random) -> bytes:
    """The bytes of a body, no longer quite JSON."""
    at = chance.randrange(len(text) + 1)
    return chance.choice((
        text[:at],
        text + b"}",
        text + b"\0",
        b"\xef\xbb\xbf" + text,
        text[:at] + bytes([chance.randrange(256)]) + text[at:],
        text.decode().encode("utf-16"),
        b"[" * 100_000,
        b'{"model":' * 5_000,
        text[:-1] + b"," + text[1:],
        b"",
        b"null",
        text.replace(b"0.", b"NaN"),
        b" " * LONG_CHARS + text,
    ))  # fmt: skip


def draw_body(chance: random.Random) -> tuple[str, bytes]:
    """A route and a body for it."""
    path, valid = chance.choice(VALID)
    body = copy.deepcopy(valid)
    for _ in range(chance.randrange(MUTATIONS_MAX + 1)):
        found = list(places(body))
        if found:
            chance.choice(STRUCTURE)(*chance.choice(found), chance)
    if not chance.randrange(HUGE_ONE_IN):
        body["user"] = "x" * HUGE_CHARS
    text = json.dumps(body).encode()
    if not chance.randrange(TEXT_ONE_IN):
        text = mutate_text(text, chance)
    return path, text
