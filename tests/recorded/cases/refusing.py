"""Requests that are refused before anything runs: by their bodies, their keys and their limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.recorded.case import CHAT, EMBED, PREFLIGHT, TEXT, Case, encode, get, post
from tests.recorded.models import ACTOR, ECHO, GHOST, TEXTER, VECTORS

HELLO = [{"role": "user", "content": "Hello"}]
BASE: dict[str, Any] = {"model": ECHO, "messages": HELLO, "max_tokens": 4}
ASSISTANT = {"role": "assistant", "content": "x"}
# One or more fields that replace those of a sound chat.
FAULTS: tuple[dict[str, Any], ...] = (
    {"temperature": 3}, {"temperature": "hot"}, {"temperature": -0.1}, {"top_p": 0}, {"top_p": 1.5},
    {"top_k": -2}, {"min_p": 2}, {"n": 0}, {"n": 9}, {"n": 1.5}, {"max_tokens": 0},
    {"max_tokens": "4"}, {"max_tokens": 100_000}, {"max_tokens": 4, "max_completion_tokens": 5},
    {"stop": ""}, {"stop": ["a", "b", "c", "d", "e"]}, {"stop": "x" * 300}, {"stop": 5},
    {"seed": 2**70}, {"seed": "x"}, {"frequency_penalty": 3}, {"presence_penalty": -3},
    {"logit_bias": {"x": 1}}, {"logit_bias": {"5": 200}}, {"logit_bias": [1]},
    {"user": "u" * 600}, {"metadata": {str(each): "" for each in range(17)}},
    {"service_tier": "flex"}, {"stream": "yes"}, {"stream_options": {"include_usage": True}},
    {"stream": True, "stream_options": {"other": True}}, {"stream": True, "stream_options": 1},
    {"logprobs": 1}, {"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 21},
    {"functions": []}, {"function_call": "auto"}, {"modalities": ["audio"]}, {"audio": {}},
    {"prediction": {}}, {"store": True}, {"reasoning_effort": "extreme"}, {"verbosity": "low"},
    {"web_search_options": {}}, {"colour": "red"}, {"model": None}, {"model": ""}, {"model": 5},
    {"model": "nobody"}, {"model": "m" * 300}, {"model": GHOST}, {"model": VECTORS},
    {"messages": []}, {"messages": "Hello"}, {"messages": None}, {"messages": [5]},
    {"messages": [{"role": "robot", "content": "x"}]}, {"messages": [{"content": "x"}]},
    {"messages": [{"role": "user"}]}, {"messages": [{"role": "user", "content": None}]},
    {"messages": [{"role": "user", "content": []}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
    {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
    {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
    {"messages": [{"role": "user", "content": [{"type": "video"}]}]},
    {"messages": [{"role": "user", "content": "x", "colour": 1}]},
    {"messages": [{"role": "user", "content": "x", "tool_calls": []}]},
    {"messages": [{"role": "user", "content": "x", "refusal": "no"}]},
    {"messages": [{"role": "tool", "content": "x"}]},
    {"messages": [{"role": "tool", "content": "x", "tool_call_id": "nobody"}]},
    {"messages": [{**ASSISTANT, "tool_calls": [{"id": "1", "type": "function"}]}]},
    {"messages": [{**ASSISTANT, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}}]}]},
    {"messages": [{**ASSISTANT, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "[]"}}]}]},
    {"prompt": "Hello"}, {"prompt": {"id": 5}},
)  # fmt: skip
COMPLETION_FAULTS: tuple[dict[str, Any], ...] = (
    {"prompt": ""}, {"prompt": []}, {"prompt": ["a", "b"]}, {"prompt": [-1]}, {"prompt": [10**7]},
    {"prompt": [1, "a"]}, {"prompt": None}, {"echo": True}, {"best_of": 3}, {"logprobs": 6},
    {"logprobs": True}, {"suffix": "x"}, {"messages": HELLO}, {"model": VECTORS},
    {"prompt": [[1, 2]]}, {"prompt": [2**40]}, {"n": 2, "best_of": 2},
)  # fmt: skip
BROKEN = (
    b"", b"{", b"[]", b"null", b"5", b'"x"', b'{"model": }', b"{'model': 'x'}", b"\xff\xfe{}",
    b'{"model": "\xff"}',
    b'{"model": "sluice-5m", "messages": [{"role": "user", "content": "\\ud800"}]}',
    b'{"model": "sluice-5m", "model": "actor", "messages": [{"role": "user", "content": "x"}], '
    b'"max_tokens": 2}',
    b"[" * 200 + b"]" * 200, b'{"model": "sluice-5m", "max_tokens": 1e400}', b'{"a": NaN}',
    b"\xef\xbb\xbf{}", b'{"model": "sluice-5m"} x', b"{}",
)  # fmt: skip


def refusing() -> Iterator[Case]:
    """All of them."""
    for number, fields in enumerate(FAULTS):
        body = {**BASE, **fields}
        yield Case(f"fault-{number:02}", "refused bodies", (post(CHAT, body),))
    for number, fields in enumerate(COMPLETION_FAULTS):
        body = {"model": ECHO, "prompt": "x", "max_tokens": 2, **fields}
        yield Case(f"text-fault-{number:02}", "refused bodies", (post(TEXT, body),))
    for number, data in enumerate(BROKEN):
        yield Case(f"broken-{number:02}", "refused bodies", (post(CHAT, data),))
    for missing in BASE:
        body = {name: value for name, value in BASE.items() if name != missing}
        yield Case(f"without-{missing}", "refused bodies", (post(CHAT, body),))
    yield from _sizes()
    yield from _keys()
    yield from _limits()


def _sizes() -> Iterator[Case]:
    long = encode({**BASE, "messages": [{"role": "user", "content": "x" * (8 * 2**20)}]})
    yield Case("body-too-large", "refused bodies", (post(CHAT, long[:2_000] + b"}",
               content_length=str(17 * 2**20)),), fresh=True)  # fmt: skip
    many = encode({**BASE, "messages": [{"role": "user", "content": "x"}] * 2_049})
    yield Case("messages-too-many", "refused bodies", (post(CHAT, many),))
    lists = b'{"model": "sluice-5m", "messages": [' + b"[]," * 40_000 + b"[]]}"
    yield Case("lists-too-many", "refused bodies", (post(CHAT, lists),))


def _keys() -> Iterator[Case]:
    chat = encode(BASE)
    for label in (
        "unknown",
        "revoked",
        "expired",
        "reader",
        "lister",
        "elsewhere",
        "near",
        "narrow",
    ):
        yield Case(f"key-{label}", "keys", (post(CHAT, chat, label),))
        for path in ("/v1/models", "/v1/key"):
            yield Case(f"key-{label}-{path[4:]}", "keys", (get(path, label),))
    wide = {**BASE, "model": ACTOR}
    yield Case("key-narrow-own", "keys", (post(CHAT, wide, "narrow"),))
    yield Case("key-lister-own", "keys", (post(TEXT, {"model": ECHO, "prompt": "x",
               "max_tokens": 2}, "lister"),))  # fmt: skip
    yield Case("key-missing", "keys", (post(CHAT, chat, ""),))
    for number, text in enumerate((
        "Bearer", "Bearer ", "Basic @KEY:main@", "bearer @KEY:main@", "Bearer  @KEY:main@",
        "@KEY:main@", "Bearer @KEY:main@x", "Bearer sk-something", "Bearer \xe9",
        "Bearer " + "x" * 900,
        "Bearer admin_sluice_x", "Bearer @KEY:main@,", "BEARER @KEY:main@", "Token @KEY:main@",
    )):  # fmt: skip
        yield Case(f"key-odd-{number:02}", "keys", (post(CHAT, chat, authorization=text),))
    yield Case("key-by-x-api-key", "keys", (post(CHAT, chat, "", x_api_key="@KEY:main@"),))
    yield Case("key-by-both", "keys", (post(CHAT, chat, x_api_key="@KEY:bare@"),))
    yield Case("key-low", "keys", (post(CHAT, {**BASE, "model": ACTOR}, "low"),))
    yield Case("key-high", "keys", (post(CHAT, {**BASE, "model": ACTOR}, "high"),))
    yield Case("organization-named", "keys", (post(CHAT, chat, openai_organization="org_x"),))


def _limits() -> Iterator[Case]:
    chat = encode(BASE)
    for label in ("slow", "daily"):
        for number in range(3):
            yield Case(f"limit-{label}-{number}", "limits", (post(CHAT, chat, label),))
        streams = encode({**BASE, "stream": True})
        yield Case(f"limit-{label}-stream", "limits", (post(CHAT, streams, label),))
        # Another request: whether one is known to have come before is a matter of chance.
        other = {**BASE, "messages": [{"role": "user", "content": "Another"}]}
        yield Case(f"limit-{label}-preflight", "limits", (post(PREFLIGHT, other, label),))
    for number, output in enumerate((1, 500, 400)):
        body = {**BASE, "max_tokens": output}
        yield Case(f"limit-scarce-{number}", "limits", (post(CHAT, body, "scarce"),))
    for number in range(6):
        body = {**BASE, "model": ACTOR, "max_tokens": 30}
        yield Case(f"budget-poor-{number}", "limits", (post(CHAT, body, "poor"),))
    for model in (ECHO, ACTOR, TEXTER, VECTORS):
        body = {**BASE, "model": model}
        yield Case(f"budget-broke-{model}", "limits", (post(CHAT, body, "broke"),))
    body = {"model": VECTORS, "input": "a long text " * 40}
    yield Case("budget-broke-embed", "limits", (post(EMBED, body, "broke"),))
    yield Case("budget-broke-key", "limits", (get("/v1/key", "broke"),))
