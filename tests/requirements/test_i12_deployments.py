"""I12: an agent on each host; models are deployed, kept running, scaled, drained and refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.support.hosts import MODEL, SERVES_S, Staff, agent_child
from tests.support.product import Child, Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def product(servers: Servers) -> Iterator[Product]:
    """A gateway with pages and API, and without nodes."""
    pages = {"SLUICE_ROLE": "all"}
    with running_product(servers, Plan(nodes=0, gateway_env=lambda number: pages)) as running:
        yield running


@pytest.fixture(scope="module")
def staff(product: Product) -> Staff:
    return Staff(product.urls[0])


@pytest.fixture(scope="module")
def agent(staff: Staff, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """The agent of one host; nothing of it is left running."""
    child = agent_child(staff, tmp_path_factory.mktemp("agent"))
    child.start()
    yield child
    status = child.stop()
    print(child.log)
    assert status == 0


@pytest.fixture
def name(request: pytest.FixtureRequest, staff: Staff, agent: Child) -> Iterator[str]:
    """The name of this test's deployment, which is removed and gone at its end."""
    made = "d-" + request.node.name.removeprefix("test_").replace("_", "-")[:30].strip("-")
    yield made
    staff("DELETE", f"deployments/{made}")
    wait_for(lambda: not staff.deployment(made), "the end of the deployment", SERVES_S)
    assert not _nodes(agent)


def _nodes(agent: Child) -> list[psutil.Process]:
    return [
        each
        for each in psutil.Process(agent.pid).children()
        if each.status() != psutil.STATUS_ZOMBIE
    ]


def _serving(staff: Staff, name: str) -> dict[str, Any]:
    wait_for(lambda: staff.deployment(name)["state"] == "serving", "a serving replica", SERVES_S)
    return staff.deployment(name)


def _chat(product: Product) -> httpx2.Response:
    return httpx2.post(
        f"{product.urls[0]}/v1/chat/completions",
        headers={"authorization": f"Bearer {product.key}"},
        json={"model": MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}]},
        timeout=60.0,
    )


def test_a_model_is_deployed_restarted_and_scaled_to_none(
    product: Product, staff: Staff, agent: Child, name: str
) -> None:
    staff.deploy(name)
    made = _serving(staff, name)
    (replica,) = made["placed"]
    assert (made["ready"], replica["host"], replica["told"]["phase"]) == (1, "host-1", "running")
    assert len(made["files_digest"]) == 64
    wait_for(lambda: _chat(product).status_code == 200, "an answer")

    os.kill(replica["told"]["pid"], signal.SIGKILL)
    wait_for(
        lambda: staff.deployment(name)["placed"][0]["told"].get("restarts") == 1,
        "the restart",
        SERVES_S,
    )
    again = _serving(staff, name)["placed"][0]
    assert again["id"] == replica["id"] and again["told"]["pid"] != replica["told"]["pid"]
    wait_for(lambda: _chat(product).status_code == 200, "an answer of the new process")

    assert staff("PATCH", f"deployments/{name}", {"replicas": 0})[0] == 200
    wait_for(lambda: staff.deployment(name)["state"] == "stopped", "the drain", SERVES_S)
    assert not _nodes(agent) and staff.deployment(name)["placed"] == []


def test_what_does_not_fit_is_refused_with_the_arithmetic(
    staff: Staff, agent: Child, name: str
) -> None:
    staff.deploy(name, window=10_000_000, sequences=4_096)
    wait_for(lambda: staff.deployment(name)["state"] == "refused", "the refusal")
    said = staff.deployment(name)["message"]
    assert "weights 0.01 GiB + keys and values" in said
    assert "2 × 6 layers × 4 heads × 32 × 2 bytes × 10,000,000 tokens × 4,096 sequences" in said
    assert "Free: host-1 " in said and staff.deployment(name)["placed"] == []


def test_a_folder_outside_those_of_the_agent_is_refused(
    staff: Staff, agent: Child, tmp_path: Path, name: str
) -> None:
    staff.deploy(name, source_name=str(tmp_path))
    wait_for(lambda: staff.deployment(name)["state"] == "refused", "the refusal")
    assert "is not below a folder of --models" in staff.deployment(name)["message"]


def test_a_host_tells_what_it_has(staff: Staff, agent: Child) -> None:
    wait_for(lambda: staff("GET", "hosts")[1]["data"][0]["fresh"], "a report")
    (host,) = staff("GET", "hosts")[1]["data"]
    told = host["inventory"]
    assert told["cores"] == os.cpu_count() and 0 < told["memory_free"] < told["memory"]
    assert 0 < told["disk_free"] <= told["disk"]
