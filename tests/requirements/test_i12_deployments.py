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

from tests.support.hosts import MODEL, SERVES_S, SHIPPED, Staff, agent_child
from tests.support.hub import TOKEN, Hub, running_hub
from tests.support.product import Child, Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import wait_for

REPOSITORY = "sluice/small"
# The client writes 10 MiB at a time: what came before that is there.
BREAKS_AT = 10_700_000


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
def hub() -> Iterator[Hub]:
    """A hub with two revisions of the shipped model, which differ in one small file."""
    files = {path.name: path.read_bytes() for path in SHIPPED.iterdir()}
    newer = {**files, "generation_config.json": b'{"temperature": 0.5}'}
    made = Hub(REPOSITORY, {"main": files, "newer": newer}, breaks_at=BREAKS_AT)
    with running_hub(made) as running:
        yield running


@pytest.fixture(scope="module")
def agent(staff: Staff, hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """The agent of one host; nothing of it is left running."""
    folder = tmp_path_factory.mktemp("agent")
    there = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN}
    child = agent_child(staff, folder, environment=there)
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


def test_a_model_of_the_hub_is_fetched_and_upgraded_one_by_one(
    product: Product, staff: Staff, hub: Hub, name: str
) -> None:
    staff.deploy(name, source_kind="hub", source_name=REPOSITORY)
    made = _serving(staff, name)
    (first,) = made["placed"]
    told = first["told"]
    assert first["revision"] == hub.commit("main")[0]  # type: ignore[index]
    assert told["fetched"] == told["to_fetch"] > len((SHIPPED / "model.safetensors").read_bytes())
    # The connection broke in the middle, and the rest alone was asked for.
    assert hub.ranges[1].startswith("bytes=") and int(hub.ranges[1][6:].split("-")[0]) > 0

    seen: list[dict[str, bool]] = []

    def upgraded() -> bool:
        now = staff.deployment(name)
        seen.append({each["id"]: each["ready"] for each in now["placed"] if not each["leaving"]})
        return bool(now["state"] == "serving" and first["id"] not in seen[-1])

    assert staff("PATCH", f"deployments/{name}", {"revision": "newer"})[0] == 200
    wait_for(upgraded, "the upgrade", SERVES_S)
    after = staff.deployment(name)
    assert (after["generation"], after["ready"]) == (2, 1)
    assert after["files_digest"] not in ("", made["files_digest"])
    # At any time somebody served.
    assert all(any(each.values()) for each in seen)
    assert _chat(product).status_code == 200


def test_a_revision_that_the_hub_does_not_have_is_refused(
    staff: Staff, hub: Hub, name: str
) -> None:
    staff.deploy(name, source_kind="hub", source_name=REPOSITORY, revision="nowhere")
    wait_for(lambda: staff.deployment(name)["state"] == "refused", "the refusal")
    assert "404" in staff.deployment(name)["message"]
