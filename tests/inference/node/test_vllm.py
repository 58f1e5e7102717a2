"""A node with real vLLM as its child: it serves over the link, its cache is followed, and its death
costs a start of vLLM and not the node.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import psutil
import pytest

from controlplane.kernel.receipt import read_receipt
from tests.support.fleet import CREDENTIAL, MODEL, NODE
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.shipped import SHIPPED
from tests.support.vllm_server import (
    ENVIRONMENT,
    LEASH,
    end_group,
    start_group,
    vllm_name,
    vllm_python,
)
from tests.support.waiting import until

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

START_S_MAX = 300.0
ANSWER_S_MAX = 60.0
EXIT_S_MAX = 120.0
BLOCK_SIZE = 32
SMALL = (
    "--dtype float32 --max-model-len 512 --enforce-eager --block-size 32"
    " --kv-cache-memory-bytes 16777216 --no-enable-chunked-prefill"
)
BAD_MODEL = 1
QUESTION = "Where is the harbour, and who built the lock? " * 4


async def test_it_serves_with_an_exact_index_and_starts_vllm_again(tmp_path: Path) -> None:
    """I9: what clients ask of a gateway is answered by real vLLM, and charged as it was counted."""
    world, log = GatewayUnderTest(), tmp_path / "log"
    async with running_gateway(world) as client:
        node = start_group(_argv(world.fleet_url), _environment(tmp_path / "names"), log)
        try:
            await _until(lambda: bool(world.fleet.candidates(MODEL)), node, log)
            link = world.fleet.candidates(MODEL)[0]
            assert link.hello.engine.startswith("vllm 0.") and link.separates_tenants
            assert link.hello.block_size == BLOCK_SIZE and link.hello.kv_blocks
            index = world.fleet.index(BLOCK_SIZE)
            await until(lambda: not index.unknown)
            text = await _check_http(world, client)
            # What vLLM caches of the prompt, the gateway finds under hashes of its own.
            first, *_, last = (read_receipt(each.receipt) for each in world.recorder.records)
            assert (first.index, first.available_tokens) == ("exact", 0)
            assert last.available_tokens == last.predicted_cached_tokens
            assert last.delivered_cached_tokens == last.available_tokens > 0
            for child in _processes_of(node.pid):
                child.kill()
            await until(lambda: not len(index))
            await _until(lambda: "vLLM serves again" in log.read_text(), node, log)
            assert (await _ask(client)).json()["choices"][0]["message"]["content"] == text
        finally:
            end_group(node)
    assert "vLLM ended with status" in log.read_text()


async def _check_http(gateway: GatewayUnderTest, client: httpx2.AsyncClient) -> str:
    """A chat, whole and as a stream: the same words, counted and charged the same."""
    whole = await _ask(client)
    assert whole.status_code == 200, whole.text
    told, text = whole.json()["usage"], whole.json()["choices"][0]["message"]["content"]
    assert text and 0 < told["completion_tokens"] <= 8 < told["prompt_tokens"]
    chain_known = gateway.fleet.index(BLOCK_SIZE)
    await until(lambda: len(chain_known) >= told["prompt_tokens"] // BLOCK_SIZE)
    stream = await _ask(client, stream=True, stream_options={"include_usage": True})
    lines = [line.removeprefix("data: ") for line in stream.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    pieces = [choice["delta"].get("content") for one in chunks for choice in one["choices"]]
    assert "".join(piece or "" for piece in pieces) == text
    await until(lambda: not gateway.ledger.open and len(gateway.recorder.records) == 2)
    charged = [each.counts for each in gateway.ledger.settled.values()]
    usages = (told, chunks[-1]["usage"])
    assert [(one.uncached + one.cached, one.output) for one in charged] == [
        (each["prompt_tokens"], each["completion_tokens"]) for each in usages
    ]
    return str(text)


async def _ask(client: httpx2.AsyncClient, **fields: object) -> httpx2.Response:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 8,
        "temperature": 0,
    }
    return await client.post("/v1/chat/completions", json={**body, **fields}, timeout=ANSWER_S_MAX)


@pytest.fixture
def folder() -> Iterator[Path]:
    """For temporary files; pytest's own paths are too long for a socket in them."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def test_what_vllm_refuses_ends_a_start_and_so_does_a_stop_while_it_loads(
    tmp_path: Path, folder: Path
) -> None:
    """Nothing is left of either."""
    log, environment = tmp_path / "log", {**_environment(tmp_path / "names"), "TMPDIR": str(folder)}
    node = start_group(_argv("ws://127.0.0.1:1", "--tensor-paralel-size 2"), environment, log)
    try:
        assert node.wait(EXIT_S_MAX) == BAD_MODEL
        assert "vLLM ended with status 2 before it served" in log.read_text()
    finally:
        end_group(node)
    node = start_group(_argv("ws://127.0.0.1:1"), environment, log)
    try:
        end_s = time.monotonic() + START_S_MAX
        while not (children := _processes_of(node.pid)):
            assert node.poll() is None and time.monotonic() < end_s, log.read_text()
            time.sleep(0.02)
        assert len(list(folder.glob("sluice-vllm-*"))) == 1
        node.terminate()
        assert node.wait(EXIT_S_MAX) == 0
        assert not any(child.is_running() for child in children)
    finally:
        end_group(node)
    assert "engine ready" not in log.read_text()
    assert not list(folder.glob("sluice-vllm-*"))


async def _until(condition: Callable[[], bool], node: subprocess.Popen[bytes], log: Path) -> None:
    end_s = time.monotonic() + START_S_MAX
    while not condition():
        if node.poll() is not None or time.monotonic() > end_s:
            raise AssertionError(await asyncio.to_thread(log.read_text))
        await asyncio.sleep(0.1)


def _argv(url: str, more: str = "") -> list[str]:
    """The command that a stranger would type, but small; vLLM is in another environment."""
    argv = [*LEASH, sys.executable, "-m", "inference", "--gateway", url, "--name", NODE]
    argv += ["--engine", "vllm", "--model", str(SHIPPED), "--model-name", MODEL]
    return [*argv, "--credits", "4", "--vllm-args", *SMALL.split(), *more.split()]


def _environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        **ENVIRONMENT,
        "SLUICE_NODE_CREDENTIAL": CREDENTIAL,
        "PATH": f"{Path(vllm_python()).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(vllm_name(folder)),
    }


def _processes_of(pid: int) -> list[psutil.Process]:
    """vLLM's processes under the node's."""
    children: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    return children
