"""Every client of docs/clients.md in its own environment, with the running product.

Not named as `make test` collects it: `make test-clients` installs the environments, then runs this.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.support.client_world import (
    AGENTS,
    DRIVERS,
    NODE,
    World,
    bin_of,
    client_world,
    driver,
    lent_torch,
)
from tests.support.servers import Servers
from tests.support.vllm_server import vllm_name

NEWEST = ".venv-clients"
OLDER = ".venv-clients-older"
AIDER = ".venv-clients-aider"
# By name: the environment whose interpreter runs it.
PYTHON = {
    "openai_official": NEWEST,
    "anthropic_official": NEWEST,
    "langchain_openai_models": NEWEST,
    "langchain_anthropic_models": NEWEST,
    "litellm_client": NEWEST,
    "pydantic_ai_agents": NEWEST,
    "openai_agents_sdk": NEWEST,
    "llama_index_models": OLDER,
    "instructor_models": OLDER,
}
COMMANDS = {
    "aider": AIDER,
    "lm_eval_tasks": NEWEST,
    "guidellm_run": NEWEST,
}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def world(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all sessions of this file."""
    with client_world(servers, tmp_path_factory.mktemp("world"), long=True) as running:
        yield running


@pytest.mark.parametrize("name", PYTHON)
def test_python(name: str, world: World, tmp_path: Path) -> None:
    # LiteLLM's driver also tries a wrong key.
    refused = (401,) if name == "litellm_client" else ()
    with world.session(name, tmp_path) as session:
        ran = session.run(driver(name, bin_of(PYTHON[name]) / "python"))
        session.finished(ran, acts=True, refused=refused)


def test_openai_a_year_old(world: World, tmp_path: Path) -> None:
    with world.session("openai_a_year_old", tmp_path) as session:
        ran = session.run(driver("openai_official", bin_of(OLDER) / "python"))
        session.finished(ran, acts=True)


@pytest.mark.parametrize("name", ["openai_refused", "anthropic_refused"])
def test_refused(name: str, world: World, tmp_path: Path) -> None:
    with world.session(name, tmp_path) as session:
        ran = session.run(driver(name, bin_of(NEWEST) / "python"))
        session.refused_only(ran, 400, 401, 404)


@pytest.mark.parametrize("name", ["openai_official", "anthropic_official", "ai_sdk"])
def test_node(name: str, world: World, tmp_path: Path) -> None:
    with world.session(f"node_{name}", tmp_path) as session:
        session.finished(session.run(["node", str(NODE / f"{name}.mjs")]), acts=True)


@pytest.mark.parametrize("name", COMMANDS)
def test_command(name: str, world: World, tmp_path: Path) -> None:
    with world.session(name, tmp_path) as session:
        ran = session.run(
            ["sh", str(DRIVERS / f"{name}.sh")],
            bins=[bin_of(COMMANDS[name])],
            # The load generator puts its prompts together with it.
            PYTHONPATH=str(lent_torch(tmp_path / "torch")),
        )
        # One asks first where a tokenizer could be had, and does without.
        session.finished(ran, acts=False, refused=(404,) if name == "lm_eval_tasks" else ())


@pytest.mark.parametrize("name", ["codex", "claude"])
def test_coding_agent(name: str, world: World, tmp_path: Path) -> None:
    with world.session(name, tmp_path) as session:
        bins = [AGENTS / "node_modules" / ".bin"]
        # Claude Code first asks whether anybody is there, and takes any answer.
        session.finished(
            session.run(["sh", str(DRIVERS / f"{name}.sh")], bins=bins),
            acts=False,
            refused=(404,) if name == "claude" else (),
        )


def test_vllm_bench(world: World, tmp_path: Path) -> None:
    with world.session("vllm_bench", tmp_path) as session:
        ran = session.run(
            ["sh", str(DRIVERS / "vllm_bench.sh")],
            bins=[bin_of(".venv-vllm")],
            PYTHONPATH=str(vllm_name(tmp_path / "names")),
        )
        # It looks for a vLLM server's metrics and tokenizer without a key, and goes on without.
        session.finished(ran, acts=False, refused=[HTTPStatus.UNAUTHORIZED])
