"""What busy nodes were like is kept by ten seconds, the most of each figure, and then forgotten."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.moments import MOMENT_DAYS, NodeLoadThen, moments_forget, node_state
from controlplane.fleet.services import node_credential_create
from tests.support.money import rows
from tests.support.people import Cast, make_cast

QUIET = {"running": 0, "waiting": 0, "kv_blocks": 100, "kv_free_blocks": 100, "step_us": 9}
BUSY = {**QUIET, "running": 6, "kv_free_blocks": 25, "cpu_permille": 980, "step_us": 20_000}


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


@pytest.fixture
def node(cast: Cast) -> uuid.UUID:
    made = node_credential_create(actor=OPERATOR, name="n1", pool="default")
    return made.credential.node_id


def _tell(node: uuid.UUID, facts: Mapping[str, int | None], gateway: str = "g1") -> None:
    links = json.dumps([{"node": node.hex, "facts": dict(facts)}])
    rows("SELECT fleet_links(%s, %s::jsonb, '{}'::jsonb)", gateway, links)


def _state(name: str = "n1") -> NodeLoadThen | None:
    now = timezone.now()
    return node_state(user=OPERATOR, name=name, start=now - timedelta(seconds=20), end=now)


def test_the_most_of_each_figure_is_kept_whichever_gateway_saw_it(node: uuid.UUID) -> None:
    _tell(node, BUSY)
    _tell(node, {**BUSY, "running": 2, "waiting": 3, "cpu_permille": None}, "g2")
    assert _state() == NodeLoadThen(6, 3, 750, 980, 20_000)


def test_an_idle_node_writes_nothing(node: uuid.UUID) -> None:
    _tell(node, QUIET)
    assert _state() is None
    assert rows("SELECT count(*) FROM node_moments") == [(0,)]


def test_a_node_that_claims_more_free_blocks_than_it_has_hides_nobody(node: uuid.UUID) -> None:
    """One error would keep the database from taking the view of all nodes of its gateway."""
    _tell(node, {**BUSY, "kv_blocks": 1, "kv_free_blocks": 4_194_304})
    assert _state() == NodeLoadThen(6, 0, 0, 980, 20_000)


def test_an_engine_without_blocks_has_no_share_of_them(node: uuid.UUID) -> None:
    _tell(node, {"running": 1, "waiting": 0, "kv_blocks": 0, "kv_free_blocks": 0, "step_us": 5})
    assert _state() == NodeLoadThen(1, 0, None, None, 5)


def test_another_time_and_another_node_are_not_told(node: uuid.UUID) -> None:
    _tell(node, BUSY)
    before = timezone.now() - timedelta(minutes=5)
    assert node_state(user=OPERATOR, name="n1", start=before, end=before) is None
    assert _state("n2") is None


def test_what_is_old_is_forgotten(node: uuid.UUID) -> None:
    _tell(node, BUSY)
    rows("UPDATE node_moments SET at = at - %s * interval '1 day'", MOMENT_DAYS + 1)
    _tell(node, BUSY)
    assert moments_forget() == 1
    assert rows("SELECT count(*) FROM node_moments") == [(1,)]


def test_the_load_of_nodes_is_for_staff_alone(cast: Cast, node: uuid.UUID) -> None:
    now = timezone.now()
    assert node_state(user=cast.stella, name="n1", start=now, end=now) is None
    with pytest.raises(PermissionDenied):
        node_state(user=cast.alice, name="n1", start=now, end=now)
