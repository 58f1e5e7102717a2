"""The engine of each test of the suite. vLLM's server is started once."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from inference.engines.base import Engine
from tests.inference.conformance.served import Served
from tests.inference.conformance.subjects import SERVER_KEY, Subject
from tests.support.encoders import make_encoder
from tests.support.shipped import SHIPPED
from tests.support.vllm_server import VllmServer, vllm_server

WINDOW = 512


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped model with a window that a small cache can hold."""
    path = tmp_path_factory.mktemp("model") / SHIPPED.name
    shutil.copytree(SHIPPED, path)
    config = path / "config.json"
    fields = json.loads(config.read_text())
    config.write_text(json.dumps({**fields, "max_position_embeddings": WINDOW}))
    return path


@pytest.fixture(scope="session")
def vllm_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """Real vLLM's own server, with a key."""
    log = tmp_path_factory.mktemp("vllm-server") / "log"
    with vllm_server(log, api_key=SERVER_KEY) as running:
        yield running


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny sentence encoder."""
    return make_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def engine(subject: Subject, request: pytest.FixtureRequest) -> Engine:
    """The subject's engine, not started."""
    return subject.make(request)


@pytest.fixture
async def served(subject: Subject, engine: Engine) -> AsyncIterator[Served]:
    """The subject's engine, serving."""
    made = Served(subject, engine)
    await engine.start(made.sink)
    yield made
    await engine.close()
    assert not made.sink.deaths
