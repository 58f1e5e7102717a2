"""What follows from the reports of hosts, without an agent: each test says what agents would."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connections, transaction
from django.utils import timezone

from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.models import Node, NodeStatus
from controlplane.fleet.selectors import node_credential_active
from controlplane.fleet.services import node_credential_revoke, node_drain, node_remove
from controlplane.hosts import services
from controlplane.hosts.models import Deployment, DeploymentReplica, Host
from controlplane.hosts.reconcile import host_report
from controlplane.hosts.services import DeploymentDraft, HostUnknown, deployment_create
from inference.contract.hosts import (
    GpuState,
    HostOrders,
    HostReport,
    Inventory,
    ModelSize,
    Phase,
    ReplicaState,
    WantedReplica,
    credential_id,
)
from tests.support.rules import make_models

pytestmark = pytest.mark.usefixtures("database")
FIRST, SECOND = "a" * 40, "b" * 40
SIZE = ModelSize(weights=1, files=1, layers=1, kv_heads=1, head_size=1, kv_value_bytes=2)
LARGE = Inventory(memory=64 << 30, memory_free=64 << 30)


def at(commit: str) -> ModelSize:
    """The size of the hub's model, found at a commit."""
    return ModelSize(weights=1, files=1, layers=1, kv_heads=1, head_size=1, revision=commit)


def add_host(name: str) -> Host:
    services.host_add(actor=OPERATOR, name=name)
    Host.objects.filter(name=name).update(seen_at=timezone.now())
    return Host.objects.get(name=name)


def deploy(name: str = "d", **values: Any) -> Deployment:
    """A deployment of the hub's model at a branch."""
    make_models("m")
    draft = {"model": "m", "source_kind": "hub", "source_name": "owner/m", "revision": "main"}
    return deployment_create(actor=OPERATOR, name=name, draft=DeploymentDraft(**draft | values))


def tell(host: Host, phase: Phase = "running", *rows: WantedReplica, **more: Any) -> HostOrders:
    """Report these replicas in that phase, with the credentials they came with."""
    states = [ReplicaState(id=each.id, phase=phase) for each in rows]
    held = {each.id: credential_id(each.credential) for each in rows if each.credential}
    given: dict[str, Any] = {"inventory": LARGE, "replicas": states, "held": held}
    return host_report(host=host, report=HostReport(**given | more))


def placed(host: Host) -> WantedReplica:
    """Measure what is asked, and take the one replica that follows."""
    asked = tell(host).measure
    (wanted,) = tell(host, sizes=dict.fromkeys(asked, at(FIRST))).replicas
    return wanted


def test_the_first_commit_that_a_host_finds_stays_that_of_the_deployment() -> None:
    one, two = add_host("h-1"), add_host("h-2")
    row = deploy(replicas=2)
    ((key, source),) = tell(one).measure.items()
    assert source.revision == "main" and tell(two).measure == {key: source}
    tell(one, sizes={key: at(FIRST)})
    orders = tell(two, sizes={key: at(SECOND)})
    row.refresh_from_db()
    assert (row.commit, row.revision, set(row.sizes)) == (FIRST, "main", {"h-1"})
    assert orders.measure == {}
    assert set(DeploymentReplica.objects.values_list("revision", flat=True)) == {FIRST}
    services.deployment_change(actor=OPERATOR, deployment=row, values={"revision": "next"})
    ((key, source),) = tell(one).measure.items()
    assert source.revision == "next"
    tell(one, sizes={key: at(SECOND)})
    row.refresh_from_db()
    assert row.commit == SECOND


def test_a_commit_that_staff_name_is_not_looked_up_and_another_is_ignored() -> None:
    host, row = add_host("h-1"), deploy(revision=FIRST)
    assert row.commit == FIRST
    ((key, source),) = tell(host).measure.items()
    assert source.revision == FIRST
    tell(host, sizes={key: at(SECOND)})
    row.refresh_from_db()
    assert (row.commit, row.sizes) == (FIRST, {})


def test_sizes_that_were_not_asked_for_are_ignored() -> None:
    named, other = add_host("h-1"), add_host("h-2")
    row = deploy(hosts=["h-1"])
    (key,) = tell(named).measure
    assert tell(other).measure == {}
    tell(other, sizes={key: at(SECOND), "unheard.1.": at(SECOND)})
    row.refresh_from_db()
    assert (row.commit, row.sizes) == ("", {})


def test_a_credential_that_staff_revoked_is_made_anew() -> None:
    host, _ = add_host("h-1"), deploy()
    wanted = placed(host)
    (again,) = tell(host, "running", wanted).replicas
    assert wanted.credential and not again.credential
    (held,) = node_credential_active(node_name=wanted.node)
    node_credential_revoke(actor=OPERATOR, credential=held, reason="leaked")
    (renewed,) = tell(host, "running", wanted).replicas
    assert renewed.credential not in ("", wanted.credential)
    # Its answer was lost: the agent still holds the old one, and gets another.
    assert tell(host, "running", wanted).replicas[0].credential


def test_a_restart_of_the_agent_leaves_a_drain_and_the_nodes_of_the_earlier_one_alone() -> None:
    host, _ = add_host("h-1"), deploy()
    wanted = placed(host)
    node_drain(actor=OPERATOR, node=Node.objects.get(name=wanted.node))
    (earlier,) = node_credential_active(node_name=wanted.node)
    (again,) = tell(host, "draining", wanted, held={}).replicas
    assert not again.credential
    assert node_credential_active(node_name=wanted.node) == [earlier]
    (again,) = tell(host).replicas
    assert again.credential
    assert Node.objects.get(name=wanted.node).standing == NodeStatus.DRAINING


def test_a_node_that_staff_removed_is_replaced_and_not_brought_back() -> None:
    host, _ = add_host("h-1"), deploy()
    wanted = placed(host)
    tell(host, "running", wanted)
    node_remove(actor=OPERATOR, node=Node.objects.get(name=wanted.node))
    (other,) = tell(host, "running", wanted).replicas
    assert other.node != wanted.node
    assert Node.objects.get(name=wanted.node).standing == NodeStatus.REMOVED


def test_a_removed_host_drains_is_given_nothing_new_and_is_then_gone() -> None:
    host, other = add_host("h-1"), add_host("h-2")
    deploy(hosts=["h-1"])
    wanted = placed(host)
    assert not services.host_remove(actor=OPERATOR, host=host)
    orders = tell(host, "running", wanted)
    assert (orders.replicas, orders.measure) == ([], {})
    assert node_credential_active(node_name=wanted.node)
    tell(host, "draining", wanted)
    assert Host.objects.filter(name="h-1").exists()
    with pytest.raises(HostUnknown):
        tell(host)
    assert not node_credential_active(node_name=wanted.node)
    assert list(Host.objects.all()) == [other]


@pytest.mark.parametrize("twice", [True, False], ids=["removed twice", "silent"])
def test_a_host_that_will_not_drain_is_forgotten_at_once(twice: bool) -> None:
    host, _ = add_host("h-1"), deploy()
    wanted = placed(host)
    if twice:
        services.host_remove(actor=OPERATOR, host=host)
    else:
        Host.objects.update(seen_at=None)
    assert services.host_remove(actor=OPERATOR, host=host)
    assert not Host.objects.exists() and not node_credential_active(node_name=wanted.node)


def elsewhere(work: Callable[[], object]) -> threading.Thread:
    """Work on a connection of its own."""

    def whole() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=whole)
    thread.start()
    return thread


def test_a_report_waits_for_no_other_host_and_for_no_deployment_in_hand() -> None:
    one, two = add_host("h-1"), add_host("h-2")
    row = deploy(source_kind="folder", source_name="/models/m", revision="", hosts=["h-2"])
    (key,) = tell(two).measure
    with transaction.atomic():
        Host.objects.select_for_update().get(id=one.id)
        Deployment.objects.select_for_update().get(id=row.id)
        thread = elsewhere(lambda: tell(two, sizes={key: SIZE}))
        thread.join(60)
        assert not thread.is_alive()
    assert not DeploymentReplica.objects.exists()
    assert len(tell(two, sizes={key: SIZE}).replicas) == 1


def test_reports_at_once_place_each_replica_once() -> None:
    hosts = [add_host(f"h-{number}") for number in range(4)]
    row = deploy(replicas=6)
    asked = {host.id: tell(host).measure for host in hosts}

    def told(host: Host) -> None:
        tell(host, sizes=dict.fromkeys(asked[host.id], at(FIRST)))

    for thread in [elsewhere(partial(told, host)) for host in hosts]:
        thread.join(60)
    tell(hosts[0])
    assert DeploymentReplica.objects.filter(deployment=row).count() == 6


def test_a_replica_is_told_its_window_and_its_share_of_the_memory() -> None:
    host, _ = add_host("h-1"), deploy(engine="vllm", window=2_048)
    gpu = GpuState(memory=80 << 30, memory_free=80 << 30)
    several = Inventory(memory=LARGE.memory, gpus=[GpuState(), gpu])
    asked = tell(host, inventory=several).measure
    sizes = dict.fromkeys(asked, at(FIRST))
    (wanted,) = tell(host, inventory=several, sizes=sizes).replicas
    need = DeploymentReplica.objects.get().need
    assert (wanted.window, wanted.gpu, wanted.share) == (2_048, 1, need / (80 << 30))
    (wanted,) = tell(host, "running", wanted, inventory=LARGE).replicas
    assert wanted.share == 1.0
