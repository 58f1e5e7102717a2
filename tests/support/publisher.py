"""The cache events of a model server, as vLLM and SGLang publish them, written by a test."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio

ENDS = (-1).to_bytes(8, "big", signed=True)


def stored(
    hashes: list[Any], tokens: list[int], *, size: int, parent: Any = None, salt: bytes | None
) -> dict[str, Any]:
    """An event of full blocks; the salt is told with the first of a prompt."""
    keys: list[list[str] | None] = [None] * len(hashes)
    if parent is None and salt is not None:
        keys[0] = [salt.hex()]
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": tokens,
        "block_size": size,
        "lora_id": None,
        "medium": "GPU",
        "extra_keys": keys,
    }


class Publisher:
    """`addresses` are of the channel and of its replays, of a `rank` as vLLM numbers them; `kept`
    is what those bring.
    """

    def __init__(self, context: zmq.asyncio.Context, folder: Path, rank: int = 0) -> None:
        end = f"_dp{rank}" if rank else ""
        self.rank = rank
        self.addresses = f"ipc://{folder}/kv{end},ipc://{folder}/replay{end}"
        self.kept: list[tuple[int, bytes]] = []
        self.number = 0
        channel, replays = self.addresses.split(",")
        self._live = context.socket(zmq.XPUB)
        self._live.bind(channel)
        self._replays = context.socket(zmq.ROUTER)
        self._replays.bind(replays)

    async def joined(self) -> None:
        """Somebody listens."""
        assert (await self._live.recv())[:1] == b"\x01"

    async def publish(self, *events: Any, keep: bool = True, send: bool = True) -> None:
        """One batch; `send` False loses it on its way."""
        number, self.number = self.number, self.number + 1
        batch = msgspec.msgpack.encode([1.5, list(events), self.rank])
        if keep:
            self.kept.append((number, batch))
        if send:
            await self._live.send_multipart([b"", number.to_bytes(8, "big"), batch])

    async def replay(self) -> None:
        """Answer whoever asks, for ever."""
        while True:
            who, _, begin = await self._replays.recv_multipart()
            for number, batch in list(self.kept):
                if number >= int.from_bytes(begin, "big"):
                    answer = [who, b"", b"", number.to_bytes(8, "big"), batch]
                    await self._replays.send_multipart(answer)
            await self._replays.send_multipart([who, b"", b"", ENDS, b""])


@contextlib.asynccontextmanager
async def publishers(ranks: int) -> AsyncIterator[list[Publisher]]:
    """One for each rank, on sockets of their own, whose paths are short enough."""
    with tempfile.TemporaryDirectory() as folder, zmq.asyncio.Context() as context:
        made = [Publisher(context, Path(folder), rank) for rank in range(ranks)]
        replaying = [asyncio.create_task(each.replay()) for each in made]
        try:
            yield made
        finally:
            for each in replaying:
                each.cancel()
            await asyncio.gather(*replaying, return_exceptions=True)
            context.destroy(linger=0)


@contextlib.asynccontextmanager
async def publisher() -> AsyncIterator[Publisher]:
    """Of a server with one rank."""
    async with publishers(1) as (made,):
        yield made
