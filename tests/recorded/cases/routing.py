"""Rules, stored prompts, retries with keys of their own, safety, nodes and clients that fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.recorded.case import CHAT, EMBED, TEXT, Case, encode, post
from tests.recorded.engine import scripted
from tests.recorded.models import ABUSE, ACTOR, BRITTLE, ECHO, GRATIS, TEXTER, VECTORS

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def routing() -> Iterator[Case]:
    """All of them."""
    yield from _rules()
    yield from _prompts()
    yield from _retries()
    yield from _safety()
    yield from _headers()
    yield from _failing()


def _hello(model: str, **more: Any) -> dict[str, Any]:
    content = more.pop("content", "Which way is it?")
    return {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 6,
            **more}  # fmt: skip


def _rules() -> Iterator[Case]:
    for alias in ("smart", "second", "third", "lost", "patient", "sized", "wide"):
        for key in ("main", "narrow", "named"):
            for streams in (False, True) if key == "main" else (False,):
                body = _hello(alias, stream=streams)
                yield Case(f"rule-{alias}-{key}-{streams}", "rules", (post(CHAT, body, key),))
    yield Case("rule-sized-long", "rules", (post(CHAT, _hello("sized", content="word " * 200)),))
    yield Case("rule-tagged", "rules", (post(CHAT, _hello(ECHO), "web"),))
    yield Case("rule-text", "rules", (post(TEXT, {"model": "second", "prompt": "x y z",
               "max_tokens": 3}),))  # fmt: skip
    yield Case("rule-too-much", "rules", (post(CHAT, _hello("second", max_tokens=900)),))
    yield Case("rule-default", "rules", (post(TEXT, {"model": "patient", "prompt": "x y"}),))
    tools = [{"type": "function", "function": {"name": "f"}}]
    yield Case("rule-tools", "rules", (post(CHAT, _hello("smart", tools=tools)),))
    yield Case("rule-tools-echo", "rules", (post(CHAT, _hello(ECHO, tools=tools)),))


def _prompts() -> Iterator[Case]:
    fill = {"context": "Doors open at nine. 🚪", "question": "When do doors open?"}
    more = [{"role": "user", "content": "And when do they close?"}]
    asked: tuple[dict[str, Any], ...] = (
        {"id": "support", "variables": fill},
        {"id": "support", "variables": {**fill, "tone": "warm", "sentences": 3}},
        {"id": "support", "version": 1, "variables": {"tone": "dry"}},
        {"id": "support", "version": "2", "variables": fill},
        {"id": "support", "variables": {**fill, "context": "{{question}} <|end|> {% x %}"}},
        {"id": "support", "version": 9}, {"id": "support", "version": "two"},
        {"id": "support", "variables": {"context": "x"}},
        {"id": "support", "variables": {**fill, "x": 1}},
        {"id": "support", "variables": {**fill, "context": "x" * 300}},
        {"id": "support", "variables": {**fill, "tone": "wet"}},
        {"id": "support", "variables": {**fill, "sentences": 9}},
        {"id": "support", "variables": {**fill, "sentences": "3"}},
        {"id": "nobody"}, {"id": "private", "variables": {"tone": "x"}}, {"id": "drafted"},
        {"id": ""}, {},
    )  # fmt: skip
    for number, used in enumerate(asked):
        body = {"model": ACTOR, "prompt": used, "max_tokens": 5}
        yield Case(f"prompt-{number:02}", "stored prompts", (post(CHAT, body),))
    for model in (ECHO, ACTOR, TEXTER):
        body = {"model": model, "prompt": asked[0], "messages": more, "max_tokens": 5}
        yield Case(f"prompt-{model}-more", "stored prompts", (post(CHAT, body),))
        streams = {**body, "stream": True}
        yield Case(f"prompt-{model}-stream", "stored prompts", (post(CHAT, streams),))


def _retries() -> Iterator[Case]:
    chat, other = encode(_hello(ACTOR)), encode(_hello(ACTOR, content="Another way?"))
    streams = encode(_hello(ACTOR, stream=True, stream_options={"include_usage": True}))
    free, dear = encode(_hello(GRATIS)), encode(_hello(ACTOR, n=0))
    text = encode({"model": ECHO, "prompt": "x", "max_tokens": 2})
    vectors = encode({"model": VECTORS, "input": "x"})
    sent: tuple[tuple[str, str, bytes, str], ...] = (
        ("first", CHAT, chat, "one"), ("again", CHAT, chat, "one"), ("third", CHAT, chat, "one"),
        ("other-body", CHAT, other, "one"), ("other-stream", CHAT, streams, "one"),
        ("other-path", TEXT, text, "one"), ("stream", CHAT, streams, "two"),
        ("stream-again", CHAT, streams, "two"), ("free", CHAT, free, "three"),
        ("free-again", CHAT, free, "three"), ("refused", CHAT, dear, "four"),
        ("refused-again", CHAT, chat, "four"), ("refused-thrice", CHAT, chat, "four"),
        ("vectors", EMBED, vectors, "five"), ("vectors-again", EMBED, vectors, "five"),
        ("long-key", CHAT, chat, "k" * 255), ("too-long-key", CHAT, chat, "k" * 256),
        ("odd-key", CHAT, chat, "\xe9 x"), ("no-node", CHAT, encode(_hello("lost")), "six"),
        ("no-node-again", CHAT, encode(_hello("lost")), "six"),
        ("rule", CHAT, encode(_hello("second")), "seven"),
        ("rule-again", CHAT, encode(_hello("second")), "seven"),
    )  # fmt: skip
    for name, path, body, key in sent:
        case = post(path, body, idempotency_key=key)
        yield Case(f"retry-{name}", "idempotency", (case,))
    case = post(CHAT, chat, "bare", idempotency_key="one")
    yield Case("retry-other-caller", "idempotency", (case,))
    script = scripted(say=["One. ", "Two. "], case="retry-of-one-under-way-first")
    slow = _hello(ACTOR, content=script, max_tokens=100, stream=True)
    again = post(CHAT, slow, idempotency_key="eight")
    first = Case("retry-of-one-under-way-first", "idempotency", (again,), told=True)
    yield replace(first, name="retry-of-one-under-way", beside=first)


def _safety() -> Iterator[Case]:
    said = {
        "fine": "The train to Vienna leaves at nine.",
        "mail": "Write to alice@example.org for more of it.",
        "card": "It is 4111 1111 1111 1111, as always.",
        "key": "Use AKIAIOSFODNN7EXAMPLE there.",
        "abuse": f"You are a {ABUSE}, my friend.",
        "late": f"{'Long ago there was a house. ' * 9}Write to bob@example.org. {'And so. ' * 9}",
        "foreign": "Schreib an jürgen@beispiel.example — 今すぐ 🙂",
    }
    for key in ("blocked", "flagged"):
        for name, text in said.items():
            for streams in (False, True):
                more = {"stream": streams, "max_tokens": 200, "content": scripted(say=[text])}
                sent = post(CHAT, _hello(ACTOR, **more), key)
                yield Case(f"safety-{key}-{name}-{streams}", "safety", (sent,))
        more = {"content": scripted(say=[{"reasoning": said["mail"], "text": "So."}])}
        yield Case(f"safety-{key}-thoughts", "safety", (post(CHAT, _hello(TEXTER, **more), key),))


def _headers() -> Iterator[Case]:
    hello = _hello(ACTOR)
    for number, headers in enumerate((
        {"traceparent": TRACE}, {"traceparent": TRACE, "tracestate": "a=b"},
        {"traceparent": "00-zz-1-1"}, {"server-timing": "app;dur=12.5, db;dur=3"},
        {"server-timing": "?"}, {"x-request-id": "mine"}, {"x-forwarded-for": "10.0.0.1"},
        {"user-agent": "OpenAI/Python 1.2.3", "x-stainless-lang": "python"},
        {"accept": "text/event-stream"}, {"accept-encoding": "gzip"}, {"x-sluice-priority": "2"},
        {"content-type": "application/json; charset=utf-8"}, {"content-type": "text/plain"},
        {"content-type": "Application/JSON"}, {"content-type": ""},
        {"content-type": "application/x"},
        {"content-encoding": "gzip"}, {"content-encoding": "identity"}, {"te": "trailers"},
        {"openai-project": "proj_x"}, {"cookie": "a=b"}, {"referer": "https://example.org"},
    )):  # fmt: skip
        named = {name.replace("-", "_"): value for name, value in headers.items()}
        yield Case(f"header-{number:02}", "headers", (post(CHAT, hello, **named),))


def _failing() -> Iterator[Case]:
    for number, leaves in enumerate((1, 2, 3)):
        name = f"client-leaves-{number}"
        script = scripted(say=["One. ", "Two. ", "Three. "], hang=True, case=name)
        sent = post(CHAT, _hello(ACTOR, content=script, max_tokens=100, stream=True))
        yield Case(name, "clients leaving", (sent,), told=True, leaves=leaves)
    for model in (ACTOR, BRITTLE):
        for streams in (False, True):
            name = f"node-fails-{model}-{streams}"
            script = scripted(say=["One. ", "Two. ", "Three. "], finish="error", case=name)
            if streams:
                sent = post(CHAT, _hello(model, content=script, max_tokens=100, stream=True))
                yield Case(name, "node", (sent,), told=True)
    # As long as one is under way, a key for one at a time has no more.
    name = "one-at-a-time"
    script = scripted(say=["One. ", "Two. "], case="one-at-a-time-first")
    sent = post(CHAT, _hello(ACTOR, content=script, max_tokens=100, stream=True), "single")
    first = Case("one-at-a-time-first", "limits", (sent,), told=True, fresh=True)
    yield replace(first, name=name, pieces=(post(CHAT, _hello(ECHO), "single"),), beside=first)
    yield Case("one-again", "limits", (post(CHAT, _hello(ECHO), "single"),))
