"""What deployments run of a pool whose plan agents follow, beside nodes of others."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.catalog.models import Pool
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.models import Node
from controlplane.fleet.overview import signals
from controlplane.fleet.services import node_credential_create
from controlplane.hosts import selectors, services
from controlplane.hosts.models import Host
from controlplane.hosts.reconcile import host_report
from controlplane.hosts.selectors import OTHERS_SETTLE, plan_shares
from controlplane.hosts.services import DeploymentDraft, deployment_create
from inference.contract.hosts import HostReport, Inventory
from tests.support.money import rows
from tests.support.rules import make_models

POOL, OTHER = "default", "theirs"


@pytest.fixture(autouse=True)
def deployed(database: str) -> None:
    """A deployment of each of two models, in a pool whose plan agents follow."""
    make_models("a", "b")
    for name in ("a", "b"):
        draft = DeploymentDraft(model=name, source_kind="hub", source_name=f"owner/{name}")
        deployment_create(actor=OPERATOR, name=name, draft=draft)


def shares(desired: int, now: datetime | None = None) -> list[int]:
    """Of both deployments, where the pool wants so many nodes."""
    Pool.objects.filter(name=POOL).update(nodes_min=desired, nodes_max=8, plan_mode="agents")
    rows("DELETE FROM pool_scales")
    return list(plan_shares(now or timezone.now()).values())


def add_other(*models: str) -> None:
    """A node that others run, with these models, which a gateway has told of just now."""
    made = node_credential_create(actor=OPERATOR, name=OTHER, pool=POOL)
    node = Node.objects.get(id=made.credential.node_id)
    node.state, node.facts, node.last_seen_at = "connected", {"models": models}, timezone.now()
    node.save()
    rows(
        "INSERT INTO node_links (node_id, gateway, facts, seen_at) VALUES (%s, 'g', %s, now())",
        node.id, json.dumps({"takes_jobs": True}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("desired", "found"), [(0, [0, 0]), (1, [1, 1]), (2, [1, 1]), (3, [2, 1]), (4, [2, 2])]
)
def test_each_model_of_the_pool_keeps_a_node(desired: int, found: list[int]) -> None:
    assert shares(desired) == found


def test_what_others_serve_needs_no_node_of_its_own() -> None:
    add_other("a")
    assert shares(1) == [0, 1]
    assert shares(3) == [1, 1]


def test_a_break_of_others_starts_nothing_before_it_has_settled() -> None:
    add_other("a", "b")
    assert shares(1) == [0, 0]
    rows("DELETE FROM node_links")
    assert shares(1) == [0, 0]
    assert shares(1, timezone.now() + OTHERS_SETTLE - timedelta(seconds=30)) == [0, 0]
    assert shares(1, timezone.now() + OTHERS_SETTLE) == [1, 1]


def test_a_report_looks_at_the_fleet_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shares(1)
    looked = []

    def counted(**given: Any) -> Any:
        looked.append(1)
        return signals(**given)

    monkeypatch.setattr(selectors, "signals", counted)
    services.host_add(actor=OPERATOR, name="h-1")
    memory = Inventory(memory=64 << 30, memory_free=64 << 30)
    host_report(host=Host.objects.get(name="h-1"), report=HostReport(inventory=memory))
    assert len(looked) == 1
