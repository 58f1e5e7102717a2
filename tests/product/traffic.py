"""Clients of the product under test: what each of them saw, kept for comparison with the ledger.

Prompts are one word, repeated; an echo node answers with the same word, so that a client can count
tokens in the text that reached it.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
from django.conf import settings
from tokenizers import Tokenizer

from controlplane.composed.demo import MODEL

WORD = " hotel"
PROMPT_TOKENS = 8
ANSWER_S_MAX = 40.0
REFUSED_PAUSE_S = 0.05
LEAVES_S_MAX = 0.3
CLIENTS = 12
TOKENS_MAX = 20
PATH = "/v1/completions"


def word_token() -> int:
    """The token of the word, in the shipped model's vocabulary."""
    tokenizer = Tokenizer.from_file(str(settings.SHIPPED_MODEL_DIR / "tokenizer.json"))
    (token,) = tokenizer.encode(WORD, add_special_tokens=False).ids
    return int(token)


def make_body(*, tokens: int = 5, stream: bool = True) -> dict[str, Any]:
    """A completion of exactly so many tokens."""
    body: dict[str, Any] = {
        "model": MODEL.name,
        "prompt": [word_token()] * PROMPT_TOKENS,
        "max_tokens": tokens,
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    return body


@dataclass
class Answer:
    """What a client got; `broken` names the transport's error where the answer was cut.

    A slow reader pauses for `pause_s` after each line of a stream.
    """

    streamed: bool
    pause_s: float = 0.0
    began_s: float = field(default_factory=time.monotonic)
    ended_s: float = 0.0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    events: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False
    broken: str = ""

    @property
    def request(self) -> str:
        """The digits of the id that the gateway gave it; empty when no headers came."""
        return self.headers.get("x-request-id", "").removeprefix("req_")

    @property
    def whole(self) -> bool:
        """A complete answer, as a client would see it."""
        return self.status == 200 and self.done

    @property
    def text(self) -> str:
        """What was generated, as far as it came."""
        pieces = [choice for event in self.events for choice in event.get("choices", ())]
        return "".join(piece.get("text", "") for piece in pieces)

    @property
    def tokens(self) -> int:
        """Tokens in the text that reached the client."""
        return self.text.count(WORD)

    @property
    def usage(self) -> dict[str, Any] | None:
        """The bill as the client was told it."""
        told = [event["usage"] for event in self.events if event.get("usage")]
        return told[-1] if told else None

    @property
    def error(self) -> dict[str, Any]:
        """The error object, in the body or as an event; empty without one."""
        return next((event["error"] for event in self.events if "error" in event), {})

    def take(self, line: str) -> None:
        """One line of an event stream."""
        if line == "data: [DONE]":
            self.done = True
        elif line.startswith("data: "):
            self.events.append(json.loads(line[len("data: ") :]))

    def close(self) -> None:
        """Nothing more comes."""
        if self.body:
            self.events.append(json.loads(self.body))
            self.done = self.status == 200


async def ask(
    client: httpx2.AsyncClient,
    key: str,
    body: dict[str, Any],
    *,
    path: str = PATH,
    answer: Answer | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send one request and read all of its answer; transport errors become part of it.

    An `answer` that is passed in fills while it comes.
    """
    answer = answer or Answer(streamed=body["stream"])
    headers = {"authorization": f"Bearer {key}", **(headers or {})}
    try:
        async with client.stream("POST", path, json=body, headers=headers) as response:
            answer.status = response.status_code
            answer.headers = dict(response.headers)
            if response.headers["content-type"].startswith("text/event-stream"):
                async for line in response.aiter_lines():
                    answer.take(line)
                    if answer.pause_s:
                        await asyncio.sleep(answer.pause_s)
            else:
                answer.body = await response.aread()
    except httpx2.TransportError as error:
        answer.broken = type(error).__name__
        answer.body = b""
    finally:
        # Also of a client that leaves.
        answer.ended_s = time.monotonic()
    answer.close()
    return answer


def open_client(url: str) -> httpx2.AsyncClient:
    """A client of one gateway."""
    limits = httpx2.Limits(max_connections=None)
    return httpx2.AsyncClient(base_url=url, timeout=ANSWER_S_MAX, limits=limits, trust_env=False)


@asynccontextmanager
async def open_clients(urls: Sequence[str]) -> AsyncIterator[list[httpx2.AsyncClient]]:
    """One for each gateway, until the block ends."""
    made = [open_client(url) for url in urls]
    yield made
    for client in made:
        await client.aclose()


class Load:
    """Clients that ask again and again, streamed and not, until they are told to stop.

    Of all requests `leaving` is the share that hangs up early.
    """

    def __init__(
        self, urls: Sequence[str], key: str, *, seed: int = 1, leaving: float = 0.0
    ) -> None:
        self.answers: list[Answer] = []
        self._key = key
        self._leaving = leaving
        self._stopping = False
        self._news = asyncio.Event()
        self._clients = [open_client(url) for url in urls]
        self._bodies = [
            make_body(tokens=tokens, stream=stream)
            for tokens in (1, TOKENS_MAX // 2, TOKENS_MAX)
            for stream in (True, False)
        ]
        self._tasks = [
            asyncio.create_task(
                self._ask_on(self._clients[number % len(urls)], random.Random(seed + number))
            )
            for number in range(CLIENTS)
        ]

    async def __aenter__(self) -> Load:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def whole(self) -> list[Answer]:
        """Answers that were complete."""
        return [answer for answer in self.answers if answer.whole]

    def refused(self, code: str) -> list[Answer]:
        """Answers without any content, by their error's code."""
        return [a for a in self.answers if a.status != 200 and a.error.get("code") == code]

    async def until(self, more: int, within_s: float = ANSWER_S_MAX) -> float:
        """Wait for so many further complete answers; returns the seconds to the first of them."""
        before, began = len(self.whole), time.monotonic()
        async with asyncio.timeout(within_s):
            while len(self.whole) < before + more:
                self._news.clear()
                await self._news.wait()
        return self.whole[before].ended_s - began

    async def stop(self) -> None:
        """Let every client finish its request."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        for client in self._clients:
            await client.aclose()

    async def _ask_on(self, client: httpx2.AsyncClient, chance: random.Random) -> None:
        while not self._stopping:
            body = chance.choice(self._bodies)
            leaves = chance.random() < self._leaving
            answer = Answer(streamed=body["stream"])
            with suppress(TimeoutError):
                async with asyncio.timeout(chance.uniform(0.0, LEAVES_S_MAX) if leaves else None):
                    await ask(client, self._key, body, answer=answer)
            self.answers.append(answer)
            self._news.set()
            if not answer.whole:
                await asyncio.sleep(REFUSED_PAUSE_S)
