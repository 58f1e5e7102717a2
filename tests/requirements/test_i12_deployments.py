"""I12: an agent on each host; models are deployed, kept running, scaled, drained and refused."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.selectors import node_credential_active
from controlplane.fleet.services import node_credential_revoke
from inference.agent.control import ControlPlane, HostRefused
from inference.contract.hosts import HostReport, Inventory
from inference.node.options import ENROL_VARIABLE
from tests.support.hosts import MODEL, SERVES_S, SHIPPED, Staff, agent_child
from tests.support.hub import TOKEN, Hub, running_hub
from tests.support.product import Child, Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import wait_for

REPOSITORY = "sluice/small"
# The client writes 10 MiB at a time: what came before that is there.
BREAKS_AT = 10_700_000
# An answer takes longer than an agent's start, and less than the drain's bound.
SLOW = {"engine": "echo", "arguments": {"tokens-per-s": "5"}}
SLOW_TOKENS = 100


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
    def serves() -> bool:
        found = staff.deployment(name)
        # The agent tells its process in a report of its own, before or after the node serves.
        known = all("pid" in replica["told"] for replica in found["placed"])
        return known and found["state"] == "serving"

    wait_for(serves, "a serving replica", SERVES_S)
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


@contextlib.contextmanager
def _stream(product: Product) -> Iterator[Iterator[str]]:
    """The lines of a slow answer, of which the first has come."""
    with httpx2.stream(
        "POST",
        f"{product.urls[0]}/v1/chat/completions",
        headers={"authorization": f"Bearer {product.key}"},
        json={
            "model": MODEL, "max_tokens": SLOW_TOKENS, "stream": True,
            "messages": [{"role": "user", "content": "one two three " * 40}],
        },
        timeout=60.0,
    ) as answer:  # fmt: skip
        assert answer.status_code == 200
        lines = answer.iter_lines()
        assert next(lines).startswith("data: {")
        yield lines


def _ended_well(lines: Iterator[str]) -> bool:
    told = [line for line in lines if line]
    return told[-1] == "data: [DONE]" and not any('"error"' in line for line in told)


def test_the_nodes_of_a_killed_agent_finish_their_answers_before_the_next_ones_start(
    product: Product, staff: Staff, agent: Child, name: str
) -> None:
    staff.deploy(name, **SLOW)
    (before,) = _serving(staff, name)["placed"]
    wait_for(lambda: _chat(product).status_code == 200, "an answer")
    with _stream(product) as lines:
        agent.kill()
        agent.start()

        def waits() -> bool:
            told = staff.deployment(name)["placed"][0]["told"]
            return "earlier agent" in told.get("message", "")

        wait_for(waits, "the next agent")
        assert _ended_well(lines)
    wait_for(lambda: staff.deployment(name)["placed"][0]["told"].get("pid"), "the next node")
    (after,) = _serving(staff, name)["placed"]
    assert after["id"] == before["id"] and after["told"]["pid"] != before["told"]["pid"]


def test_a_removed_host_finishes_its_answers_and_then_its_agent_is_refused(
    product: Product, staff: Staff, agent: Child, name: str, tmp_path: Path
) -> None:
    leaving = agent_child(staff, tmp_path, "host-2")
    leaving.start()
    try:
        staff.deploy(name, hosts=["host-2"], **SLOW)
        _serving(staff, name)
        wait_for(lambda: _chat(product).status_code == 200, "an answer")
        with _stream(product) as lines:
            assert staff("DELETE", "hosts/host-2")[0] == 200
            assert _ended_well(lines)
        assert leaving.wait() == 1 and "start its agent with the new token" in leaving.log
    finally:
        leaving.stop()
    assert [host["name"] for host in staff("GET", "hosts")[1]["data"]] == ["host-1"]


def test_a_host_that_is_added_again_goes_on_with_the_new_token(
    product: Product, staff: Staff, agent: Child, tmp_path: Path
) -> None:
    report = HostReport(inventory=Inventory())

    def enrol(token: str = "") -> ControlPlane:
        made = ControlPlane(product.urls[0])
        made.enrol({ENROL_VARIABLE: token} if token else {}, tmp_path, "host-3")
        return made

    def add() -> str:
        return str(staff("POST", "hosts", {"name": "host-3"})[1]["token"])

    first = add()
    for made in (enrol(first), enrol(), enrol(first)):
        assert made.report(report).report_s > 0
    second = add()
    with pytest.raises(HostRefused, match="add the host again on the page Deployments"):
        enrol(first).report(report)
    assert enrol(second).report(report).report_s > 0
    assert enrol().report(report).report_s > 0
    assert staff("DELETE", "hosts/host-3")[0] == 200
    with pytest.raises(HostRefused):
        enrol().report(report)
    assert "host-3" not in {host["name"] for host in staff("GET", "hosts")[1]["data"]}


def test_a_node_whose_credential_is_revoked_is_started_with_another(
    staff: Staff, agent: Child, name: str
) -> None:
    staff.deploy(name, engine="echo")
    (before,) = _serving(staff, name)["placed"]
    (held,) = node_credential_active(node_name=before["node"])
    node_credential_revoke(actor=OPERATOR, credential=held, reason="leaked")

    def renewed() -> bool:
        told = staff.deployment(name)["placed"][0]["told"]
        return told.get("pid") not in (None, before["told"]["pid"])

    wait_for(renewed, "another process", SERVES_S)
    (after,) = _serving(staff, name)["placed"]
    assert (after["id"], after["told"]["restarts"]) == (before["id"], 0)


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
