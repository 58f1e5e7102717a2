"""Clients of every temper, who ask again and again until they are told to stop."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import httpx2

from tests.product.traffic import Answer, ask, make_body, open_client

# Longer than a freeze and the deadline of a request after it: what has not ended by then hangs.
ENDED_S_MAX = 45.0
TOKENS_MAX = 30
REFUSED_PAUSE_S = 0.2
LEAVES_S_MAX = 0.4
SLOW_PAUSE_S = 0.05
RETRIES_MAX = 60
KEPT_HEADERS = ("x-request-id", "x-sluice-node", "retry-after", "x-sluice-idempotent-replay")
# How many of each temper.
CLIENTS = {"streams": 4, "whole": 4, "leaves": 2, "slow": 2, "retries": 2}


@dataclass
class Asked:
    """One request as its client saw it: of which gateway, and under which idempotency key."""

    answer: Answer
    gateway: int
    left: bool = False
    key: str = ""


@dataclass
class Traffic:
    """All clients; `asked` is everything that has ended."""

    urls: Sequence[str]
    key: str
    chance: random.Random
    asked: list[Asked] = field(default_factory=list)
    _clients: list[httpx2.AsyncClient] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _stopping: bool = False

    async def __aenter__(self) -> Traffic:
        self._clients = [open_client(url) for url in self.urls]
        for client in self._clients:
            # One kept alive may be closed by its server just as it is used again.
            client.headers["connection"] = "close"
        self.resume()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pause()
        for client in self._clients:
            await client.aclose()

    def resume(self) -> None:
        """Begin to ask."""
        self._stopping = False
        tempers: dict[str, Callable[[int, random.Random], Awaitable[None]]] = {
            "streams": self._stream,
            "whole": self._whole,
            "leaves": self._leave,
            "slow": self._slow,
            "retries": self._retry,
        }
        self._tasks = [
            asyncio.create_task(self._go_on(tempers[name], number % len(self.urls)))
            for name, count in CLIENTS.items()
            for number in range(count)
        ]

    async def pause(self) -> None:
        """Let every client finish what it is at."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    def count(self) -> Counter[str]:
        """How the answers ended, for people."""
        return Counter(
            "whole" if each.answer.whole
            else "left" if each.left
            else each.answer.error.get("code") or each.answer.broken or str(each.answer.status)
            for each in self.asked
        )  # fmt: skip

    async def probe(self, gateway: int) -> bool:
        """One small request, which is counted, too; whether it was answered whole."""
        asked = await self._ask(gateway, tokens=1, stream=False)
        return asked.answer.whole

    async def _go_on(
        self, temper: Callable[[int, random.Random], Awaitable[None]], gateway: int
    ) -> None:
        chance = random.Random(self.chance.random())
        while not self._stopping:
            await temper(gateway, chance)

    async def _stream(self, gateway: int, chance: random.Random) -> None:
        await self._ask(gateway, tokens=chance.randint(1, TOKENS_MAX), stream=True)

    async def _whole(self, gateway: int, chance: random.Random) -> None:
        await self._ask(gateway, tokens=chance.randint(1, TOKENS_MAX), stream=False)

    async def _leave(self, gateway: int, chance: random.Random) -> None:
        leaves_s = chance.uniform(0.0, LEAVES_S_MAX)
        await self._ask(gateway, tokens=TOKENS_MAX, stream=True, leaves_s=leaves_s)

    async def _slow(self, gateway: int, chance: random.Random) -> None:
        await self._ask(gateway, tokens=TOKENS_MAX, stream=True, pause_s=SLOW_PAUSE_S)

    async def _retry(self, gateway: int, chance: random.Random) -> None:
        """Repeat one request under its key, at any gateway, until it is answered or charged."""
        key = secrets.token_hex(8)
        tokens, stream = chance.randint(1, TOKENS_MAX), chance.random() < 0.5
        for attempt in range(RETRIES_MAX):
            place = (gateway + attempt) % len(self.urls)
            asked = await self._ask(place, tokens=tokens, stream=stream, key=key)
            if asked.answer.whole or asked.answer.error.get("code") == "idempotency_charged":
                return

    async def _ask(
        self,
        gateway: int,
        *,
        tokens: int,
        stream: bool,
        key: str = "",
        leaves_s: float | None = None,
        pause_s: float = 0.0,
    ) -> Asked:
        body = make_body(tokens=tokens, stream=stream)
        asked = Asked(Answer(streamed=stream, pause_s=pause_s), gateway, key=key)
        headers = {"idempotency-key": key} if key else {}
        within_s = ENDED_S_MAX if leaves_s is None else leaves_s
        try:
            async with asyncio.timeout(within_s):
                client = self._clients[gateway]
                await ask(client, self.key, body, answer=asked.answer, headers=headers)
        except TimeoutError:
            asked.left = leaves_s is not None
            asked.answer.broken = "" if asked.left else "hung"
            asked.answer.close()
        _shorten(asked.answer)
        self.asked.append(asked)
        if not asked.answer.whole and not self._stopping:
            await asyncio.sleep(REFUSED_PAUSE_S)
        return asked


def _shorten(answer: Answer) -> None:
    """Keep what books are checked with: a soak sees tens of thousands of answers."""
    usage, error = answer.usage, answer.error
    answer.events = [{"choices": [{"text": answer.text}]}]
    answer.events += [{"usage": usage}] if usage else []
    answer.events += [{"error": error}] if error else []
    answer.headers = {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers}
    answer.body = b""
