"""Whole sessions of the official clients with the running product; all others are in
`every_client.py`, which `make test-clients` runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client_world import NODE, World, client_world, driver
from tests.support.servers import Servers


@pytest.fixture(scope="module")
def world(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all sessions of this file."""
    with client_world(servers, tmp_path_factory.mktemp("world")) as running:
        yield running


@pytest.mark.timeout(300)
def test_openai_python(world: World, tmp_path: Path) -> None:
    with world.session("openai-python", tmp_path) as session:
        session.finished(session.run(driver("openai_official")), acts=True)


@pytest.mark.timeout(300)
def test_openai_python_refused(world: World, tmp_path: Path) -> None:
    with world.session("openai-python-refused", tmp_path) as session:
        session.refused_only(session.run(driver("openai_refused")), 400, 401, 404)


@pytest.mark.timeout(300)
def test_openai_node(world: World, tmp_path: Path) -> None:
    with world.session("openai-node", tmp_path) as session:
        ran = session.run(["node", str(NODE / "openai_official.mjs")])
        session.finished(ran, acts=True)
