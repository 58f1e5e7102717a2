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

import psutil
import pytest
from msgspec.structs import replace

from inference.contract.blocks import chain_hashes
from inference.contract.frames import Sampling
from tests.support.fleet import (
    CREDENTIAL,
    MODEL,
    NODE,
    World,
    fleet_server,
    make_job,
    outputs_of,
    until,
)
from tests.support.shipped import SHIPPED, long_prompt
from tests.support.vllm_server import ENVIRONMENT, LEASH, end_group, start_group, vllm_python

START_S_MAX = 300.0
EXIT_S_MAX = 120.0
BLOCK_SIZE = 32
WINDOW = 512
SMALL = {"enforce_eager": True, "max_model_len": WINDOW}
BAD_MODEL = 1
ENGINE_DIED = 3


async def test_it_serves_and_an_engine_that_dies_takes_the_node_along(tmp_path: Path) -> None:
    world, log = World(), tmp_path / "log"
    async with fleet_server(world) as server:
        node = start_group(_argv(server.url), _environment(), log)
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


@pytest.fixture
def folder() -> Iterator[Path]:
    """For temporary files; pytest's own paths are too long for a socket in them."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def test_told_to_stop_while_vllm_loads_it_stops_and_leaves_nothing(
    tmp_path: Path, folder: Path
) -> None:
    log = tmp_path / "log"
    environment = {**_environment(), "TMPDIR": str(folder)}
    node = start_group(_argv("ws://127.0.0.1:1"), environment, log)
    try:
        end_s = time.monotonic() + START_S_MAX
        while not (engines := _engines_of(node.pid)):
            assert node.poll() is None and time.monotonic() < end_s, log.read_text()
            time.sleep(0.02)
        assert list(folder.glob("sluice-vllm-*"))
        node.terminate()
        assert node.wait(EXIT_S_MAX) == 0
        assert not any(engine.is_running() for engine in engines)
    finally:
        end_group(node)
    text = log.read_text()
    assert "engine ready" not in text and "did not stop loading" not in text, text
    assert not list(folder.glob("sluice-vllm-*"))


def test_a_folder_without_a_tokenizer_leaves_no_temporary_folder(
    tmp_path: Path, folder: Path
) -> None:
    log, model = tmp_path / "log", tmp_path / "model"
    shutil.copytree(SHIPPED, model)
    (model / "tokenizer_config.json").unlink()
    environment = {**_environment(), "TMPDIR": str(folder)}
    node = start_group(_argv("ws://127.0.0.1:1", model=model), environment, log)
    try:
        assert node.wait(EXIT_S_MAX) == BAD_MODEL
    finally:
        end_group(node)
    assert "tokenizer_config.json" in log.read_text()
    assert not list(folder.glob("sluice-vllm-*"))


def test_an_argument_that_vllm_does_not_have_ends_the_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    node = start_group(_argv("ws://127.0.0.1:1", tensor_paralel_size=2), _environment(), log)
    try:
        assert node.wait(EXIT_S_MAX) == BAD_MODEL
    finally:
        end_group(node)
    assert "no engine argument 'tensor_paralel_size'" in log.read_text()


def _argv(url: str, *, model: Path = SHIPPED, **args: Any) -> list[str]:
    """The command that a stranger would type, but small."""
    argv = [*LEASH, vllm_python(), "-m", "inference", "--gateway", url, "--name", NODE]
    argv += ["--engine", "vllm", "--model", str(model), "--model-name", MODEL]
    argv += ["--dtype", "float32", "--kv-mib", "8", "--threads", "1", "--credits", "4"]
    return [*argv, "--vllm-args", json.dumps({**SMALL, **args})]


def _environment() -> dict[str, str]:
    return {**os.environ, **ENVIRONMENT, "SLUICE_NODE_CREDENTIAL": CREDENTIAL}


def _engines_of(pid: int) -> list[psutil.Process]:
    """vLLM's own process under the node's, if it is there already."""
    children = psutil.Process(pid).children(recursive=True)
    return [each for each in children if "EngineCore" in " ".join(each.cmdline())]
