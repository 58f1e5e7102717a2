"""What runs no model or embeds: lists, the key, preflight, the description, browsers, vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.recorded.case import CHAT, EMBED, PREFLIGHT, TEXT, Case, get, post
from tests.recorded.cases.texts import SENTENCES
from tests.recorded.models import ACTOR, ECHO, GHOST, GRATIS, ORIGIN, TEXTER, VECTORS

HELLO = [{"role": "user", "content": "Hello there, how are you today? 🙂"}]


def reading() -> Iterator[Case]:
    """All of them."""
    yield from _lists()
    yield from _preflights()
    yield from _browsers()
    yield from _vectors()


def _lists() -> Iterator[Case]:
    for key in ("main", "bare", "narrow", "named", "reader", "web"):
        yield Case(f"models-{key}", "reading", (get("/v1/models", key),))
    # Keys of which nothing was asked before: for a second a gateway remembers what is left.
    for key in ("main", "bare", "named", "web", "low", "high"):
        yield Case(f"key-in-hand-{key}", "reading", (get("/v1/key", key),))
    for name in (ECHO, ACTOR, GHOST, "smart", "nobody", "%61ctor", "a/b", "%00", ""):
        yield Case(f"model-{name or 'none'}", "reading", (get(f"/v1/models/{name}"),))
    yield Case("model-not-for-key", "reading", (get(f"/v1/models/{ECHO}", "narrow"),))
    yield Case("description", "reading", (get("/v1/openapi.json", ""),))
    yield Case("description-with-key", "reading", (get("/v1/openapi.json"),))


def _preflights() -> Iterator[Case]:
    asked: tuple[tuple[dict[str, Any], str], ...] = (
        ({"model": ECHO, "max_tokens": 5}, "main"), ({"model": ACTOR, "max_tokens": 5}, "main"),
        ({"model": ACTOR}, "bare"), ({"model": TEXTER}, "main"), ({"model": GRATIS}, "main"),
        ({"model": GHOST}, "main"), ({"model": "second"}, "main"), ({"model": "nobody"}, "main"),
        ({"model": ECHO, "max_tokens": 9_999}, "main"), ({"model": ECHO}, "broke"),
        ({"model": ECHO}, "narrow"), ({"model": VECTORS}, "main"),
        ({"model": ECHO, "n": 0}, "main"),
        ({"model": ECHO}, "reader"), ({"model": ECHO, "stream": True}, "main"),
        ({"model": "smart"}, "named"), ({"model": ECHO}, "unknown"),
        ({"model": ACTOR, "messages": [{"role": "user", "content": "x " * 5_000}]}, "main"),
    )  # fmt: skip
    for number, (fields, key) in enumerate(asked):
        body = {"messages": HELLO, **fields}
        yield Case(f"preflight-{number:02}", "reading", (post(PREFLIGHT, body, key),))


def _browsers() -> Iterator[Case]:
    hello = {"model": ECHO, "messages": HELLO, "max_tokens": 2}
    for place, origin in enumerate((ORIGIN, "https://stranger.example.org", "null", "")):
        for path in (CHAT, "/v1/models", "/v1/nothing"):
            asked = get(path, "", "OPTIONS", origin=origin, access_control_request_method="POST",
                        access_control_request_headers="authorization")  # fmt: skip
            yield Case(f"browser-{place}-{path.rpartition('/')[2]}", "browsers", (asked,))
        sent = post(CHAT, {**hello, "stream": place == 0}, origin=origin)
        yield Case(f"browser-{place}-sends", "browsers", (sent,))
        yield Case(f"browser-{place}-refused", "browsers", (get("/v1/key", "", origin=origin),))


def _vectors() -> Iterator[Case]:
    asked: tuple[dict[str, Any], ...] = (
        {"input": "Hello"}, {"input": ["Hello", "there"]}, {"input": [15, 16, 17]},
        {"input": [[15, 16], [17], [18, 19, 20]]}, {"input": list(SENTENCES)},
        {"input": "Hello", "encoding_format": "base64"}, {"input": "Hello", "dimensions": 4},
        {"input": ["Hello", "there"], "dimensions": 4, "encoding_format": "base64"},
        {"input": "Hello", "dimensions": 8, "user": "someone"}, {"input": "word " * 1_000},
        {"input": "Hello", "dimensions": 5}, {"input": ""}, {"input": []}, {"input": ["x", ""]},
        {"input": ["x", 5]}, {"input": [[]]}, {"input": None}, {"input": [10**6]}, {"input": [-1]},
        {"input": "Hello", "encoding_format": "hex"}, {"input": "Hello", "stream": True},
        {"input": ["x"] * 2_049}, {"input": "word " * 9_000}, {},
        {"input": "Hello", "model": "points"}, {"input": "Hello", "model": ECHO},
        {"input": "Hello", "model": "smart"}, {"input": "Hello", "model": "nobody"},
        {"input": "Hello", "dimensions": 0},
    )  # fmt: skip
    for number, fields in enumerate(asked):
        body = {"model": VECTORS, **fields}
        yield Case(f"vectors-{number:02}", "embeddings", (post(EMBED, body),))
    yield Case("vectors-narrow", "embeddings", (post(EMBED, {"model": VECTORS, "input": "x"},
               "narrow"),))  # fmt: skip
    yield Case("vectors-to-text", "embeddings", (post(TEXT, {"model": VECTORS, "prompt": "x"}),))
