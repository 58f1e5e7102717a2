"""/api/fleet/ and /metrics: who may, what is answered, and errors that name a field."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.models import (
    EnrolmentToken,
    GatewayQueue,
    ModelDigest,
    Node,
    NodeCredential,
    NodeStatus,
)
from controlplane.fleet.services import node_credential_create
from controlplane.kernel.keys.format import ENROL_PREFIX, NODE_PREFIX, parse_credential
from tests.support.money import rows
from tests.support.people import make_cast, signed_in

pytestmark = pytest.mark.usefixtures("database")
JSON = "application/json"


class Caller:
    """A program with the operator's token, or with what else it has."""

    def __init__(self, token: str | None = None) -> None:
        self._client = Client()
        text = settings.OPERATOR_TOKEN if token is None else token
        self._headers = {"authorization": f"Bearer {text}"} if text else {}

    def __call__(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and body."""
        data = json.dumps({} if body is None else body)
        answer = self._client.generic(
            method, f"/api/fleet/{path}", data, content_type=JSON, headers=self._headers
        )
        return answer.status_code, json.loads(answer.content)


def audited() -> list[str]:
    return [row[0] for row in rows("SELECT action FROM audit_entries ORDER BY id")]


@pytest.mark.parametrize("path", ["pools", "digests"])
def test_only_staff_and_the_operator_are_answered(path: str) -> None:
    cast = make_cast()
    assert Caller("")("GET", path)[0] == 401
    assert Caller("wrong")("GET", path)[0] == 401
    assert Caller(settings.METRICS_TOKEN)("GET", path)[0] == 401
    assert signed_in(cast.alice).get(f"/api/fleet/{path}").status_code == 403
    assert signed_in(cast.stella).get(f"/api/fleet/{path}").status_code == 200
    assert Caller()("GET", path)[0] == 200


def test_a_session_needs_its_csrf_token() -> None:
    stella = make_cast().stella
    client = Client(enforce_csrf_checks=True)
    client.force_login(stella, backend="django.contrib.auth.backends.ModelBackend")
    answer = client.put("/api/fleet/pools/gold", "{}", content_type=JSON)
    assert answer.status_code == 403


def test_a_token_lets_one_node_in_once() -> None:
    call = Caller()
    status, made = call("POST", "tokens", {"pool": "default", "models": ["m"]})
    assert status == 201 and parse_credential(made["token"], ENROL_PREFIX)
    node = {"token": made["token"], "name": "gpu-1", "pool": "default"}
    anyone = Caller("")
    assert anyone("POST", "enrol", {**node, "pool": "gold"})[1]["error"]["fields"]["pool"]
    status, given = anyone("POST", "enrol", node)
    assert status == 201 and parse_credential(given["credential"], NODE_PREFIX)
    assert given["approved"] is False
    assert anyone("POST", "enrol", {**node, "name": "gpu-2"})[0] == 403
    row = Node.objects.get(name="gpu-1")
    assert (row.standing, row.pool) == (NodeStatus.PENDING, "default")
    assert NodeCredential.objects.get(node=row).allowed_models == ["m"]
    assert call("POST", "nodes/gpu-1/approve")[1] == {"node": "gpu-1", "changed": True}
    assert audited()[-3:] == ["enrolment.create", "enrolment.redeem", "node.approve"]


def test_a_token_can_be_ended_before_it_is_used() -> None:
    call, node = Caller(), {"name": "gpu-1", "pool": "default"}
    _, made = call("POST", "tokens", {"pool": "default"})
    (listed,) = call("GET", "tokens")[1]["data"]
    assert listed["id"] == made["id"] and "token" not in listed
    assert call("DELETE", f"tokens/{made['id']}")[1]["changed"] is True
    assert call("DELETE", f"tokens/{made['id']}")[1]["changed"] is False
    assert Caller("")("POST", "enrol", {**node, "token": made["token"]})[0] == 403
    assert call("GET", "tokens")[1]["data"] == []
    assert audited()[-1] == "enrolment.revoke"


def test_an_old_or_invented_token_and_a_name_in_use_are_refused() -> None:
    call, anyone = Caller(), Caller("")
    node_credential_create(actor=OPERATOR, name="here", pool="default")
    _, made = call("POST", "tokens", {"pool": "default", "approved": True})
    node = {"token": made["token"], "name": "gpu-1", "pool": "default"}
    assert anyone("POST", "enrol", {**node, "name": "here"})[1]["error"]["fields"]["name"]
    invented = made["token"][:-1] + ("1" if made["token"].endswith("0") else "0")
    assert anyone("POST", "enrol", {**node, "token": invented})[0] == 403
    EnrolmentToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert anyone("POST", "enrol", node)[0] == 403
    EnrolmentToken.objects.update(expires_at=timezone.now() + timedelta(hours=1))
    call("POST", "nodes/here/remove")
    assert anyone("POST", "enrol", {**node, "name": "here"})[1]["approved"] is True


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("tokens", {"pool": "gold"}, "pool"),
        ("tokens", {"pool": "default", "life_hours": 25}, "life_hours"),
        ("tokens", {"pool": "default", "models": []}, "models"),
        ("tokens", {"pool": "default", "speed": 1}, "speed"),
        ("nodes/n1/drain", {"deadline_s": -1}, "deadline_s"),
        ("nodes/n1/drain", {"deadline_s": "soon"}, "deadline_s"),
        ("nodes/n1/remove", {"really": True}, "really"),
    ],
)
def test_a_wrong_value_is_named(path: str, body: dict[str, object], named: str) -> None:
    node_credential_create(actor=OPERATOR, name="n1", pool="default")
    status, answer = Caller()("POST", path, body)
    assert status == 400 and named in json.dumps(answer)


def test_nodes_are_drained_taken_back_and_removed() -> None:
    call = Caller()
    node_credential_create(actor=OPERATOR, name="a/b 1", pool="default")
    for action, standing in (("drain", "draining"), ("undrain", "active"), ("remove", "removed")):
        assert call("POST", f"nodes/a/b 1/{action}")[1]["changed"] is True
        assert Node.objects.get().standing == standing
        assert call("POST", f"nodes/a/b 1/{action}")[1]["changed"] is False
    assert NodeCredential.objects.get().revoked_at is not None
    assert call("POST", "nodes/nobody/drain")[0] == 404
    assert audited()[-3:] == ["node.drain", "node.undrain", "node.remove"]


def test_pools_by_api_leave_the_command_alone() -> None:
    call = Caller()
    assert call("PUT", "pools/gold", {"nodes_max": 4, "nodes_min": 1})[0] == 201
    assert call("PUT", "pools/gold", {"nodes_min": 2, "separate_caches": True})[0] == 200
    node_credential_create(actor=OPERATOR, name="n1", pool="gold")
    path = {"kernels": "torch", "slow": "reason", "decode_tokens_s": 9.5, "prefill_tokens_s": None}
    Node.objects.update(facts={"separates_tenants": False, "path": path})
    first, gold = call("GET", "pools")[1]["data"]
    assert (first["separate_caches"], gold["separate_caches"]) == (False, True)
    assert gold["nodes"][0]["separates_tenants"] is False
    assert gold["nodes"][0]["path"] == path
    assert call("PUT", "pools/gold", {"nodes_min": 9})[1]["error"]["fields"]["nodes_max"]
    assert call("PUT", "pools/gold", {"start_command": "x"})[0] == 400
    gold = next(pool for pool in call("GET", "pools")[1]["data"] if pool["pool"] == "gold")
    assert (gold["nodes_min"], gold["nodes_max"], gold["desired"]) == (2, 4, 2)


def test_nothing_has_a_nul_in_its_name() -> None:
    call = Caller()
    assert call("PUT", "pools/%00")[0] == 404
    assert call("POST", "nodes/%00/approve")[0] == 404


def test_a_digest_is_decided() -> None:
    row = ModelDigest.objects.create(model="m", digest="a" * 64, offered_by="n1")
    call = Caller()
    assert call("GET", "digests")[1]["data"][0]["state"] == "waiting"
    assert call("POST", f"digests/{row.id}/approve")[1]["changed"] is True
    assert call("POST", f"digests/{row.id}/approve")[1]["changed"] is False
    assert call("POST", f"digests/{row.id}/refuse")[1]["changed"] is True


def test_the_signal_is_read_with_the_metrics_token_alone() -> None:
    path = "pools/default/desired"
    assert Caller("")("GET", path)[0] == 401
    assert Caller("wrong")("GET", path)[0] == 401
    status, told = Caller(settings.METRICS_TOKEN)("GET", path)
    assert status == 200 and told["desired"] == 0
    assert Caller(settings.METRICS_TOKEN)("GET", "pools/gold/desired")[0] == 404


# Two of them wait for another pool, to which a rule has led.
WAITING = {"models": {"m": 9}, "pools": {"default": 7, "gold": 2}, "unmet": []}


def test_metrics_tell_queue_depth_apart_from_utilization() -> None:
    node = node_credential_create(actor=OPERATOR, name="n1", pool="default").credential.node
    rows(
        "INSERT INTO models (id, created_at, name, task, pool, context_window,"
        " output_tokens_default, output_tokens_max, enabled, owner)"
        " VALUES (gen_random_uuid(), now(), 'm', 'generate', 'default', 64, 8, 8, true, 'x')"
    )
    facts = json.dumps({"takes_jobs": True, "credits": 8, "active": 2, "kv_blocks": 10,
                        "kv_free_blocks": 5})  # fmt: skip
    links = json.dumps([{"node": node.id.hex, "facts": json.loads(facts)}])
    rows("SELECT fleet_links('g1', %s::jsonb, %s::jsonb)", links, json.dumps(WAITING))
    rows("SELECT fleet_observe('n1', 'connected', %s::jsonb, false)",
         json.dumps({"epoch": "e", "cold_start_ms": 2500}))  # fmt: skip
    assert GatewayQueue.objects.get().waiting == WAITING
    assert Client().get("/metrics").status_code == 401
    headers = {"authorization": f"Bearer {settings.METRICS_TOKEN}"}
    text = Client().get("/metrics", headers=headers).content.decode()
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["sluice_queue_depth", "m"] == 9
    assert found["sluice_pool_queue_depth", "default"] == 7
    assert found["sluice_pool_utilization_ratio", "default"] == 0.25
    assert found["sluice_pool_kv_used_ratio", "default"] == 0.5
    assert found["sluice_pool_nodes_ready", "default"] == 1
    assert found["sluice_pool_nodes_desired", "default"] == 1
    assert found["sluice_pool_cold_start_seconds_bucket", "default", "2.0"] == 0
    assert found["sluice_pool_cold_start_seconds_bucket", "default", "5.0"] == 1
    assert signed_in(make_cast().stella).get("/metrics").status_code == 200
