"""Nodes of the recorded requests as one process: `python -m tests.recorded.nodes SPEC`.

SPEC is JSON: the gateway's `url`, the `folders` of tokenizers by their names, the `nodes` with
name, model, pool, mode and the `text` that is theirs, the `socket` at which the client tells what
it has read, and the `journal` into which each job is written. Credentials are in the environment.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from inference.contract.blocks import chain_hashes
from inference.contract.frames import Job, Sampling
from inference.node.assets import Assets, ModelAssets
from inference.node.options import NodeOptions
from inference.node.service import Node
from tests.recorded.engine import BLOCK_SIZE, Pieces, ScriptedEngine

CREDENTIALS = "RECORDED_NODE_CREDENTIALS"
PIECE_BYTES_MAX = 256
ENDS_SHOWN = 6
# A request has ten minutes, or what its rule gives it.
SHORT_MS = 300_000


class Journal:
    """Each job as a line of JSON, with what no two runs have alike left out."""

    def __init__(self, path: Path) -> None:
        self._out = path.open("a", buffering=1)
        self._salts: dict[bytes, str] = {}

    def note(self, job: Job) -> None:
        """Write a job down."""
        self._out.write(json.dumps({"request": job.request.hex(), "job": self._facts(job)}) + "\n")

    def _facts(self, job: Job) -> dict[str, Any]:
        hashes = b"".join(chain_hashes(job.tokens, BLOCK_SIZE, job.salt))
        neutral = msgspec.structs.asdict(Sampling(max_tokens=0))
        sampling = msgspec.structs.asdict(job.sampling)
        facts = {
            "model": job.model,
            "tokens": _shown(job.tokens),
            "salt": self._salts.setdefault(job.salt, f"salt {len(self._salts) + 1}"),
            # Without tokens they are of the request's bytes.
            "hashes": len(job.hashes)
            if job.hashes == hashes or not job.tokens
            else f"wrong: {job.hashes.hex()}",
            "sampling": {
                name: msgspec.to_builtins(value)
                for name, value in sampling.items()
                if value != neutral[name]
            },
            "stop_tokens": job.stop_tokens,
            "deadline": "short" if job.deadline_ms < SHORT_MS else "usual",
            "priority": job.priority,
            "request_json": job.request_json.decode(),
            "inputs": [_shown(each) for each in job.inputs],
            "traceparent": job.traceparent,
            "tracestate": job.tracestate,
            "ticket": bool(job.ticket),
        }
        return {name: value for name, value in facts.items() if value not in ("", [], 0)}


def _shown(tokens: list[int]) -> str:
    """All of a few token ids, and how many, both ends and a checksum of more."""
    if len(tokens) <= 3 * ENDS_SHOWN:
        return " ".join(map(str, tokens))
    first, last = tokens[:ENDS_SHOWN], tokens[-ENDS_SHOWN:]
    mixed = 0
    for token in tokens:
        mixed = (mixed * 1_000_003 + token + 1) % (2**61 - 1)
    ends = f"{' '.join(map(str, first))} … {' '.join(map(str, last))}"
    return f"{len(tokens)}: {ends} sum {mixed:x}"


async def serve(spec: dict[str, Any]) -> None:
    """Until a signal."""
    loop = asyncio.get_running_loop()
    pieces, journal = Pieces(), Journal(Path(spec["journal"]))
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    told.bind(spec["socket"])
    loop.add_reader(told.fileno(), partial(_take, told, pieces))
    credentials = json.loads(os.environ[CREDENTIALS])
    nodes = []
    for each in spec["nodes"]:
        folder = Path(spec["folders"][each["text"]])
        engine = ScriptedEngine(
            folder, each["model"], each["mode"], pieces=pieces, note=journal.note
        )
        assets: Assets = Assets() if each["mode"] == "text" else ModelAssets(folder)
        options = NodeOptions(
            gateways=(spec["url"],),
            name=each["name"],
            credential=credentials[each["name"]],
            pool=each["pool"],
            probe_interval_s=0,
        )
        nodes.append(Node(engine, assets, options))
        await nodes[-1].start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    await asyncio.gather(*(node.close() for node in nodes))


def _take(told: socket.socket, pieces: Pieces) -> None:
    case, _, count = told.recv(PIECE_BYTES_MAX).decode().rpartition(":")
    pieces.take(case, int(count))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    uvloop.run(serve(json.loads(sys.argv[1])))
