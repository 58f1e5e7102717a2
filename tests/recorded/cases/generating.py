"""Chats and completions as clients ask for them, drawn by a seed: echoed, or as a script says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.recorded.case import CHAT, TEXT, Case, post
from tests.recorded.cases.texts import ANSWERS, SENTENCES, prompt, talk
from tests.recorded.engine import scripted
from tests.recorded.models import ACTOR, BRITTLE, ECHO, GRATIS, TEXTER

SEED = 20_261
CHATS, COMPLETIONS, SPOKEN, TEXT_ONLY = 54, 36, 40, 16
SAMPLING: tuple[dict[str, Any], ...] = (
    {}, {}, {"temperature": 0}, {"temperature": 0.7, "top_p": 0.9}, {"seed": 7}, {"seed": -1},
    {"top_k": 40, "min_p": 0.05}, {"top_k": -1}, {"frequency_penalty": 0.5},
    {"presence_penalty": -1.5, "temperature": 2}, {"logit_bias": {"15": -100, "300": 3.5}},
    {"user": "someone", "metadata": {"a": "b"}}, {"service_tier": "auto"}, {"n": 2}, {"n": 3},
    {"temperature": None, "seed": None, "n": None, "stop": None},
)  # fmt: skip
# What the echo engine has; of the others it would refuse the job.
NOT_ECHOED = {
    "frequency_penalty", "logit_bias", "presence_penalty", "seed", "top_k", "top_p",
}  # fmt: skip
ECHOED = tuple(
    each for each in SAMPLING
    if not {*each} & NOT_ECHOED
)  # fmt: skip
STOPS: tuple[Any, ...] = (
    "harbour",
    ["。", "?"],
    ["\n"],
    "👍🏽",
    ["zzz", "no such", "text", "here"],
)


def generating() -> Iterator[Case]:
    """All of them."""
    chance = random.Random(SEED)
    for number in range(CHATS):
        yield _chat(chance, f"chat-{number:03}")
    for number in range(COMPLETIONS):
        yield _completion(chance, f"completion-{number:03}")
    for number in range(SPOKEN):
        yield _spoken(chance, f"spoken-{number:03}")
    for number in range(TEXT_ONLY):
        yield _of_text(chance, f"server-{number:03}")
    yield from _long()


def streamed(chance: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    """Whole or as a stream, with and without usage."""
    kind = chance.choice(("whole", "whole", "plain", "usage", "false"))
    if kind == "false":
        return {**body, "stream": False}
    if kind == "whole":
        return body
    options = {"stream_options": {"include_usage": True}} if kind == "usage" else {}
    return {**body, "stream": True, **options}


def _kind(body: dict[str, Any], base: str) -> str:
    return f"{base}, streamed" if body.get("stream") else base


def _chat(chance: random.Random, name: str) -> Case:
    model = chance.choice((ECHO, ECHO, ACTOR, BRITTLE, GRATIS))
    body: dict[str, Any] = {
        "model": model,
        "messages": talk(chance, chance.choice((1, 1, 2, 3, 5))),
    }
    body |= chance.choice(ECHOED if model == ECHO else SAMPLING)
    output = chance.choice(("max_tokens", "max_completion_tokens", ""))
    body |= {output or "max_tokens": chance.choice((1, 2, 7, 24, 40))}
    if chance.random() < 0.3:
        body["stop"] = chance.choice(STOPS)
    if model != ECHO and chance.random() < 0.3:
        body |= chance.choice(({"logprobs": True}, {"logprobs": True, "top_logprobs": 3}))
    body = streamed(chance, body)
    return Case(name, _kind(body, "chat"), (post(CHAT, body, chance.choice(("main", "bare"))),))


def _completion(chance: random.Random, name: str) -> Case:
    model = chance.choice((ECHO, ECHO, ACTOR, BRITTLE, GRATIS))
    tokens = [chance.randrange(5, 400) for _ in range(chance.choice((1, 5, 40)))]
    body: dict[str, Any] = {
        "model": model,
        "prompt": chance.choice((prompt(chance), prompt(chance), tokens)),
    }
    body |= chance.choice(ECHOED if model == ECHO else SAMPLING)
    if chance.random() < 0.8:
        body["max_tokens"] = chance.choice((1, 3, 16, 32))
    if chance.random() < 0.3:
        body["stop"] = chance.choice(STOPS)
    if model != ECHO and chance.random() < 0.4:
        body["logprobs"] = chance.choice((0, 1, 4))
    body = streamed(chance, body)
    return Case(name, _kind(body, "completion"), (post(TEXT, body),))


def _spoken(chance: random.Random, name: str) -> Case:
    """An answer in steps that is no repetition, some cut inside a character, some by what stops."""
    said = [chance.choice(SENTENCES + ANSWERS) for _ in range(chance.choice((1, 2, 3, 5)))]
    whole = " ".join(said)
    is_chat, streams = chance.random() < 0.6, chance.random() < 0.6
    finish = chance.choice(("stop", "stop", "length"))
    n = chance.choice((1, 1, 1, 2))
    script: dict[str, Any] = {"say": said, "finish": finish}
    if n > 1:
        script["choices"] = [said, said[::-1]]
    # Bytes of characters over borders of steps leave nothing to read, so nobody waits for them.
    if streams and whole.isascii():
        script["case"] = name
    body: dict[str, Any] = {"model": ACTOR, "n": n, "max_tokens": chance.choice((4, 30, 400))}
    if chance.random() < 0.4:
        body["stop"] = whole[len(whole) // 2 :][:3] or "x"
        script.pop("case", None)
    if chance.random() < 0.3:
        body |= {"logprobs": True, "top_logprobs": 2} if is_chat else {"logprobs": 2}
        script.pop("case", None)
    if "case" not in script:
        # All in one step: how steps are joined is a matter of time.
        script["say"] = ["".join(said)]
        script.pop("choices", None)
    asked = f"Please say: {scripted(**script)}"
    if is_chat:
        body["messages"] = [*talk(chance, 1), {"role": "user", "content": asked}]
    else:
        body["prompt"] = asked
    if streams:
        body |= {"stream": True, "stream_options": {"include_usage": chance.random() < 0.5}}
    path = CHAT if is_chat else TEXT
    return Case(name, _kind(body, "answer in steps"), (post(path, body),), told=True)


def _of_text(chance: random.Random, name: str) -> Case:
    """From a server behind a node: text, thoughts, calls and the server's own count."""
    parts: list[dict[str, Any]] = [{"text": each} for each in chance.sample(ANSWERS, 2)]
    finish = chance.choice(("stop", "length", "content_filter"))
    script: dict[str, Any] = {}
    if chance.random() < 0.4:
        parts.insert(0, {"reasoning": "Let me think. 🤔 "})
    if chance.random() < 0.4:
        usage = {"prompt_tokens": 21, "cached_tokens": 5, "completion_tokens": 9,
                 "reasoning_tokens": 3,
                 "source": chance.choice(("engine", "estimate"))}  # fmt: skip
        script["usage"] = usage
    streams = chance.random() < 0.5
    if streams:
        script["case"] = name
    asked = scripted(say=parts, finish=finish, **script)
    body: dict[str, Any] = {
        "model": TEXTER,
        "messages": [*talk(chance, 2), {"role": "user", "content": asked}],
        "max_tokens": 50,
        **chance.choice(SAMPLING[:8]),
        **({"stream": True, "stream_options": {"include_usage": True}} if streams else {}),
    }
    body.pop("n", None)
    return Case(name, _kind(body, "a server's answer"), (post(CHAT, body),), told=True)


def _long() -> Iterator[Case]:
    """Up to the window and beyond it, and the same beginning again, which is cached."""
    words = "The quick brown fox jumps over the lazy dog, and again. "
    for number, (count, output) in enumerate(
        ((20, 4), (20, 8), (21, 4), (60, 4), (60, 500), (120, 4), (250, 1), (300, 4), (400, 16),
         (800, 4), (3_000, 1), (20, None), (150, None))
    ):  # fmt: skip
        for model in (ACTOR, ECHO):
            body: dict[str, Any] = {
                "model": model,
                "messages": [
                    {"role": "system", "content": words * count},
                    {"role": "user", "content": f"Question {number % 3}?"},
                ],
                "stop": "fox",
            }
            if output is not None:
                body["max_tokens"] = output
            yield Case(f"long-{number:02}-{model}", "long prompt", (post(CHAT, body),))
