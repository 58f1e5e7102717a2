"""The live map through Django's client and the API: who sees it, what it says of whom."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.test import override_settings
from django.utils import timezone
from redis import Redis

from controlplane.composed.livemap import gather, parts
from controlplane.composed.livemap.parts import part_id, standing_of
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.jobs.lives import (
    BEAT,
    KEPT_S,
    WORKER,
    Known,
    Life,
    key_of,
    lives_put,
    own_life,
)
from controlplane.fleet.models import Node, NodeState
from controlplane.fleet.services import node_credential_create
from controlplane.hosts.services import host_add
from frontend.fleet.map_layout import lasted
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in
from tests.support.servers import redis_door

GATEWAY = "127.0.0.1:8000"
NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def door(database: str) -> Iterator[Redis]:
    with redis_door() as door:
        door.flushall()
        yield door
        door.flushall()


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def _gateway(**facts: Any) -> Life:
    return own_life("gateway", GATEWAY, **{"instance": "g1", **facts})


def _age(door: Redis, kind: str, name: str, seconds: float) -> None:
    """As if the record had been written so long ago."""
    door.pexpire(key_of(kind, name), round((KEPT_S - seconds) * 1_000))


def _parts(cast: Cast) -> dict[str, dict[str, Any]]:
    found = signed_in(cast.stella).get("/api/fleet/map").json()["parts"]
    return {f"{part['kind']} {part['name']}".strip(): part for part in found}


def _edges(cast: Cast) -> dict[tuple[str, str], Any]:
    found = signed_in(cast.stella).get("/api/fleet/map").json()["edges"]
    return {(edge["source"], edge["target"]): (edge["amount"], edge["unit"]) for edge in found}


def _node(name: str, *, gateway: str = "g1", active: int = 3, **facts: Any) -> Node:
    node = node_credential_create(actor=OPERATOR, name=name, pool="default").credential.node
    Node.objects.filter(id=node.id).update(
        state=NodeState.CONNECTED,
        facts={"engine": "echo", "device": "cpu", **facts},
        last_seen_at=timezone.now(),
    )
    told = {"active": active, "credits": 4, "breaker": "closed", "takes_jobs": True}
    rows(
        "INSERT INTO node_links (node_id, gateway, facts, seen_at) VALUES (%s, %s, %s, now())",
        *(node.id, gateway, msgspec.json.encode(told).decode()),
    )
    return node


def test_only_staff_see_the_map(cast: Cast, door: Redis) -> None:
    alice, stella = signed_in(cast.alice), signed_in(cast.stella)
    assert alice.get("/map").status_code == 403
    assert alice.get("/api/fleet/map").status_code == 403
    text = stella.get("/map").content.decode()
    assert 'href="/map"' in text and 'data-poll="1000"' in text
    part = stella.get("/map", headers={"HX-Request": "true"}).content.decode()
    assert "<svg" in part and "<html" not in part


@pytest.mark.parametrize(
    ("age_s", "state"), [(0.0, "live"), (2.6, "late"), (4.1, "gone"), (KEPT_S, "gone")]
)
def test_a_process_is_as_old_as_its_last_heartbeat(age_s: float, state: str) -> None:
    assert standing_of(Known(_gateway(), age_s)).state == state


def test_processes_are_gone_and_forgotten(
    cast: Cast, door: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A machine that stands still for seconds makes no heartbeat late.
    monkeypatch.setattr(parts, "LATE_S", 100.0)
    monkeypatch.setattr(parts, "GONE_S", 100.0)
    lives_put([_gateway(), own_life(WORKER, "w"), own_life(BEAT, "")])
    assert _parts(cast)[f"gateway {GATEWAY}"]["state"] == "live"
    _age(door, "gateway", GATEWAY, 200.0)
    found = _parts(cast)[f"gateway {GATEWAY}"]
    assert (found["state"], found["health"]) == ("gone", "bad") and found["age_s"] >= 200
    assert _parts(cast)["worker w"]["state"] == "live", "only the one that is silent"
    lives_put([_gateway()], drop=True)
    assert f"gateway {GATEWAY}" not in _parts(cast)


def test_the_page_says_what_needs_a_look(cast: Cast, door: Redis) -> None:
    stella = signed_in(cast.stella)
    assert "all parts are healthy" in stella.get("/map").content.decode()
    lives_put([_gateway(problem="PostgreSQL cannot be <reached>")])
    text = stella.get("/map").content.decode()
    assert "needs attention" in text and "degraded" in text
    assert "PostgreSQL cannot be &lt;reached&gt;" in text


def test_little_room_is_a_warning(cast: Cast, door: Redis) -> None:
    lives_put([_gateway(levels={"jobs on nodes": (90, 100), "queued requests": (500, 0)})])
    found = _parts(cast)[f"gateway {GATEWAY}"]
    assert (found["health"], found["state"]) == ("warn", "saturated")
    assert {"name": "jobs on nodes", "used": 90, "bound": 100} in found["levels"]


def test_edges_have_what_goes_there(cast: Cast, door: Redis) -> None:
    lives_put([_gateway(rates={"requests": 2.5}, proxies={"10.0.0.1": 7}), own_life(WORKER, "w")])
    door.lpush("celery", "a", "b")
    _node("n1")
    own, edges = part_id("gateway", GATEWAY), _edges(cast)
    assert edges["clients", own] == edges[own, "postgres"] == (2.5, "req/s")
    assert edges[part_id("proxy", "10.0.0.1"), own] == (7, "conn.")
    assert edges[own, "node-n1"] == (3, "jobs")
    assert edges["worker-w", "redis"] == (2, "jobs")
    assert "7 conn." in signed_in(cast.stella).get("/map").content.decode()


def test_names_that_differ_in_a_mark_alone_are_two_parts(cast: Cast, door: Redis) -> None:
    names = ("gpu-1", "gpu.1", "gpu 1", "gpu_1", "gpü1")
    for name in names:
        node_credential_create(actor=OPERATOR, name=name, pool="default")
    text = signed_in(cast.stella).get("/map").content.decode()
    for name in names:
        assert text.count(f'aria-label="Node {name}: ') == 1
        assert text.count(f'id="row-{part_id("node", name)}"') == 1


def test_a_node_is_as_its_gateways_say(cast: Cast, door: Redis) -> None:
    lives_put([_gateway()])
    node = _node("n1")
    found = _parts(cast)["node n1"]
    assert (found["state"], found["version"]) == ("ready", "echo on cpu")
    assert found["levels"][0] == {"name": "jobs", "used": 3, "bound": 4}
    for age_s, state in ((5, "late"), (11, "not connected")):
        rows("UPDATE node_links SET seen_at = now() - make_interval(secs => %s)", age_s)
        assert _parts(cast)["node n1"]["state"] == state
    rows("DELETE FROM node_links")
    Node.objects.filter(id=node.id).update(state=NodeState.DISCONNECTED)
    assert _parts(cast)["node n1"]["health"] == "bad"


def test_many_nodes_are_one_part_for_each_pool(
    cast: Cast, door: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "NODES_DRAWN_MAX", 2)
    lives_put([_gateway()])
    for number in range(3):
        _node(f"n{number}")
    rows("DELETE FROM node_links WHERE node_id = (SELECT id FROM nodes WHERE name = 'n2')")
    found = _parts(cast)
    assert "node n1" not in found
    assert (found["pool default"]["state"], found["pool default"]["health"]) == (
        "2 of 3 ready",
        "warn",
    )
    assert _edges(cast)[part_id("gateway", GATEWAY), "pool-default"] == (6, "jobs")


def test_hosts_are_as_their_agents_report(cast: Cast, door: Redis) -> None:
    host = host_add(actor=OPERATOR, name="desk-1").host
    assert _parts(cast)["host desk-1"]["state"] == "never connected"
    host.inventory = {"memory": 100, "memory_free": 5}
    for age_s, health in ((0, "warn"), (11, "bad")):
        host.seen_at = timezone.now() - timedelta(seconds=age_s)
        host.save()
        assert _parts(cast)["host desk-1"]["health"] == health
    assert _parts(cast)["host desk-1"]["levels"] == [
        {"name": "memory, bytes", "used": 95, "bound": 100}
    ]


def test_what_is_dialled_fades_where_no_worker_looks(cast: Cast, door: Redis) -> None:
    place = "otel.example.org"
    well = Life(kind="collector", name=place, connect_ms=1.5, tls_ms=8.0)
    ill = Life(kind="webhook", name="hook.example.org", problem="no route")
    stores = Life(kind="postgres", name="", connect_ms=0.5)
    lives_put([well, ill, stores, _gateway(rates={"traces": 4.0})])
    found = _parts(cast)
    assert (found[f"collector {place}"]["state"], found[f"collector {place}"]["tls_ms"]) == (
        "reachable",
        8.0,
    )
    assert found["webhook hook.example.org"]["state"] == "unreachable"
    assert found["postgres"]["connect_ms"] == 0.5 and found["postgres"]["version"]
    line = part_id("gateway", GATEWAY), part_id("collector", place)
    assert _edges(cast)[line] == (4.0, "traces/s")
    _age(door, "collector", place, 40.0)
    assert _parts(cast)[f"collector {place}"]["state"] == "not checked"


def test_without_redis_gateways_are_known_by_postgres(cast: Cast, door: Redis) -> None:
    rows("SELECT fleet_gateway_alive('g1', %s, 0)", f"ws://{GATEWAY}/fleet")
    with override_settings(REDIS_URL=NOWHERE):
        found = _parts(cast)
        assert (found["redis"]["health"], found["redis"]["state"]) == ("bad", "unreachable")
        assert found["redis"]["problem"]
        assert found[f"gateway {GATEWAY}"]["state"] == "live"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "–"), (59.9, "59 s"), (61, "1 min 1 s"), (3_700, "1 h 1 min"), (90_000, "1 d 1 h")],
)
def test_times_have_two_units(seconds: float | None, words: str) -> None:
    assert lasted(seconds) == words
