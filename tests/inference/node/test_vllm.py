"""A node with real vLLM: it serves over the link, and its engine's death ends it with status 3."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from msgspec.structs import replace

from inference.contract.blocks import chain_hashes
from inference.contract.frames import Sampling
from tests.support.fleet import CREDENTIAL, MODEL, NODE, make_job, outputs_of
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.shipped import SHIPPED, long_prompt
from tests.support.vllm_server import ENVIRONMENT, LEASH, end_group, start_group, vllm_python
from tests.support.waiting import until

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

START_S_MAX = 300.0
ANSWER_S_MAX = 60.0
EXIT_S_MAX = 120.0
BLOCK_SIZE = 32
WINDOW = 512
SMALL = {"enforce_eager": True, "max_model_len": WINDOW}
BAD_MODEL = 1
ENGINE_DIED = 3
# Several starts of a node, each after the end of the other: vLLM is imported once for all.
STARTS = """
import json, sys
from inference.__main__ import main
for words in json.loads(sys.argv[1]):
    status = main(words)
    print("ended with", status, flush=True)
sys.exit(status)
"""


async def test_it_serves_and_an_engine_that_dies_takes_the_node_along(tmp_path: Path) -> None:
    """I9: what clients ask of a gateway is answered by real vLLM, and charged as it was counted."""
    world, log = GatewayUnderTest(), tmp_path / "log"
    async with running_gateway(world) as client:
        node = start_group(_argv(world.fleet_url), _environment(), log)
        try:
            end_s = time.monotonic() + START_S_MAX
            while not world.fleet.candidates(MODEL):
                assert node.poll() is None and time.monotonic() < end_s, log.read_text()
                await asyncio.sleep(0.1)
            link = world.fleet.candidates(MODEL)[0]
            assert (link.hello.engine, link.hello.block_size) == ("vllm", BLOCK_SIZE)
            job = replace(make_job(max_tokens=4), tokens=long_prompt(100))
            outputs = await outputs_of(world.fleet.dispatch(link, job))
            assert outputs[-1].usage.completion_tokens <= 4
            # What vLLM caches, the gateway finds under hashes of its own.
            chain = chain_hashes(job.tokens, BLOCK_SIZE, job.salt)
            index = world.fleet.index(BLOCK_SIZE)
            await until(lambda: index.cached_blocks(chain) == {NODE: 3})
            await _check_http(world, client)
            endless = Sampling(max_tokens=WINDOW // 2, temperature=0.0, ignore_eos=True)
            cut = world.fleet.dispatch(
                link, replace(make_job(), tokens=long_prompt(20), sampling=endless)
            )
            await cut.batch()
            _engines_of(node.pid)[0].kill()
            status = await asyncio.to_thread(node.wait, EXIT_S_MAX)
        finally:
            end_group(node)
    assert status == ENGINE_DIED
    assert "engine died" in log.read_text()


async def _check_http(gateway: GatewayUnderTest, client: httpx2.AsyncClient) -> None:
    """A chat, whole and as a stream: the same words, counted and charged the same."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Where is the harbour?"}],
        "max_tokens": 8,
        "temperature": 0,
    }
    path = "/v1/chat/completions"
    whole = await client.post(path, json=body, timeout=ANSWER_S_MAX)
    assert whole.status_code == 200, whole.text
    told, text = whole.json()["usage"], whole.json()["choices"][0]["message"]["content"]
    assert text and 0 < told["completion_tokens"] <= 8 < told["prompt_tokens"]
    streaming = body | {"stream": True, "stream_options": {"include_usage": True}}
    stream = await client.post(path, json=streaming, timeout=ANSWER_S_MAX)
    lines = [line.removeprefix("data: ") for line in stream.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    pieces = [choice["delta"].get("content") for one in chunks for choice in one["choices"]]
    assert "".join(piece or "" for piece in pieces) == text
    await until(lambda: not gateway.ledger.open)
    charged = [each.counts for each in gateway.ledger.settled.values()]
    usages = (told, chunks[-1]["usage"])
    assert [(one.uncached + one.cached, one.output) for one in charged] == [
        (each["prompt_tokens"], each["completion_tokens"]) for each in usages
    ]


@pytest.fixture
def folder() -> Iterator[Path]:
    """For temporary files; pytest's own paths are too long for a socket in them."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def test_what_cannot_be_served_ends_a_start_and_so_does_a_stop_while_vllm_loads(
    tmp_path: Path, folder: Path
) -> None:
    """Three starts: an argument that vLLM does not have, a folder without a tokenizer, and one that
    is told to stop. Nothing is left of any.
    """
    log, model = tmp_path / "log", tmp_path / "model"
    shutil.copytree(SHIPPED, model)
    (model / "tokenizer_config.json").unlink()
    url = "ws://127.0.0.1:1"
    starts = [_words(url, tensor_paralel_size=2), _words(url, model=model), _words(url)]
    argv = [*LEASH, vllm_python(), "-c", STARTS, json.dumps(starts)]
    node = start_group(argv, {**_environment(), "TMPDIR": str(folder)}, log)
    try:
        end_s = time.monotonic() + START_S_MAX
        while not (engines := _engines_of(node.pid)):
            assert node.poll() is None and time.monotonic() < end_s, log.read_text()
            time.sleep(0.02)
        wrong, foreign, _ = log.read_text().split(f"ended with {BAD_MODEL}\n")
        assert "no engine argument 'tensor_paralel_size'" in wrong
        assert "tokenizer_config.json" in foreign
        assert len(list(folder.glob("sluice-vllm-*"))) == 1
        node.terminate()
        assert node.wait(EXIT_S_MAX) == 0
        assert not any(engine.is_running() for engine in engines)
    finally:
        end_group(node)
    text = log.read_text()
    assert text.endswith("ended with 0\n")
    assert "engine ready" not in text and "did not stop loading" not in text, text
    assert not list(folder.glob("sluice-vllm-*"))


def _argv(url: str) -> list[str]:
    """The command that a stranger would type, but small."""
    return [*LEASH, vllm_python(), "-m", "inference", *_words(url)]


def _words(url: str, *, model: Path = SHIPPED, **args: Any) -> list[str]:
    argv = ["--gateway", url, "--name", NODE]
    argv += ["--engine", "vllm", "--model", str(model), "--model-name", MODEL]
    argv += ["--dtype", "float32", "--kv-mib", "8", "--threads", "1", "--credits", "4"]
    return [*argv, "--vllm-args", json.dumps({**SMALL, **args})]


def _environment() -> dict[str, str]:
    return {**os.environ, **ENVIRONMENT, "SLUICE_NODE_CREDENTIAL": CREDENTIAL}


def _engines_of(pid: int) -> list[psutil.Process]:
    """vLLM's own process under the node's, if it is there already."""
    children = psutil.Process(pid).children(recursive=True)
    return [each for each in children if "EngineCore" in _command_of(each)]


def _command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # Over meanwhile.
        return ""
