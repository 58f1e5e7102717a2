"""The Fleet page through Django's client: who sees it, what it says, what its forms do."""

from __future__ import annotations

import json
import re
import uuid
from datetime import timedelta

import pytest
from django.test import override_settings
from django.utils import timezone

from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.services import ModelDraft, model_create
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.fleet.models import DigestState, ModelDigest, Node, NodeCredential, NodeState
from controlplane.fleet.services import node_credential_create
from controlplane.kernel.keys.format import ENROL_PREFIX, parse_credential
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.services import ALLOWED_MODELS_MAX
from inference.contract.version import VERSION
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in
from tests.support.records import make_record
from tests.support.traffic import store


@pytest.fixture
def cast(database: str) -> Cast:
    """Stella runs the installation and is a viewer in Acme."""
    made = make_cast()
    membership_set(actor=made.alice, organization=made.acme, user=made.stella, role=Role.VIEWER)
    return made


def _token_form() -> dict[str, str]:
    return {"form_id": uuid.uuid4().hex, "name": "n1", "pool": "default", "life_hours": "2"}


def _node() -> Node:
    return node_credential_create(actor=OPERATOR, name="n1", pool="default").credential.node


def test_only_staff_see_the_fleet(cast: Cast) -> None:
    node = _node()
    alice, stella = signed_in(cast.alice), signed_in(cast.stella)
    assert alice.get("/fleet").status_code == 403
    assert "/fleet" not in alice.get("/").content.decode()
    assert alice.post(f"/fleet/nodes/{node.id.hex}/remove").status_code == 403
    assert alice.post("/fleet/tokens", {"name": "x", "pool": "default"}).status_code == 403
    text = stella.get("/fleet").content.decode()
    assert "never connected" in text
    assert 'href="/fleet"' in stella.get("/").content.decode()


def test_a_node_of_another_release_is_told(cast: Cast) -> None:
    node, stella = _node(), signed_in(cast.stella)
    for release, other in ((VERSION, False), ("0.0.1", True), ("", False)):
        Node.objects.filter(id=node.id).update(facts={"release": release})
        text = stella.get("/fleet").content.decode()
        hint = f'<div class="hint">Sluice {release}'
        assert (hint in text) == bool(release)
        assert ("other release" in text) == other
    assert f'release">Sluice {VERSION}</p>' in text


def test_of_many_nodes_some_are_drawn_and_others_found_by_name(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    stella = signed_in(cast.stella)
    monkeypatch.setattr("frontend.fleet.nodes.NODES_DRAWN_MAX", 3)
    for number in range(5):
        node_credential_create(actor=OPERATOR, name=f"node-{number}", pool="default")
    text = stella.get("/fleet").content.decode()
    assert text.count('class="name"') == 3 and "2 more nodes" in text
    assert 'aria-label="Name of a node"' in text
    found = stella.get("/fleet?node=node-4", headers={"hx-request": "true"}).content.decode()
    assert found.count('class="name"') == 1 and "node-4" in found
    assert "has this name" in stella.get("/fleet?node=none").content.decode()
    found = stella.get("/find?q=node-4").content.decode()
    assert "/fleet?node=node-4#pool-title-default" in found


def test_an_empty_pool_says_what_to_do(cast: Cast) -> None:
    text = signed_in(cast.stella).get("/fleet").content.decode()
    assert "This pool has no nodes" in text and 'data-opens="enrol-node"' in text


def test_a_token_is_shown_once_in_a_command_to_paste(cast: Cast) -> None:
    stella = signed_in(cast.stella)
    form = {**_token_form(), "name": "gpu 1"}
    answer = stella.post("/fleet/tokens", form)
    text = answer.content.decode()
    (token,) = set(re.findall(r"enrol_sluice_\w{12}_\w{43}_\w{6}", text))
    assert parse_credential(token, ENROL_PREFIX)
    assert "--gateway ws://testserver --name &#x27;gpu 1&#x27; --pool default" in text
    assert "no-store" in answer["Cache-Control"]
    assert token not in stella.get("/fleet").content.decode()
    assert stella.get("/fleet/tokens").status_code == 302
    assert stella.post("/fleet/tokens", {**form, "life_hours": "25"}).status_code == 422


def test_a_node_of_another_address_redeems_its_token_at_the_pages(cast: Cast) -> None:
    stella = signed_in(cast.stella)
    assert "--enrol-url" not in stella.post("/fleet/tokens", _token_form()).content.decode()
    with override_settings(GATEWAY_URL="https://gw.example.org"):
        text = stella.post("/fleet/tokens", _token_form()).content.decode()
    assert "--gateway wss://gw.example.org --name n1" in text
    assert "--enrol-url http://testserver" in text


def test_an_open_token_is_listed_and_revoked(cast: Cast) -> None:
    stella = signed_in(cast.stella)
    stella.post("/fleet/tokens", _token_form())
    path = re.findall(r"/fleet/tokens/token_\w{32}/revoke", stella.get("/fleet").content.decode())[
        0
    ]
    assert signed_in(cast.alice).post(path).status_code == 403
    answer = stella.post(path, follow=True).content.decode()
    assert "can no longer be used" in answer and path not in answer


def test_actions_reach_the_node(cast: Cast) -> None:
    stella, node = signed_in(cast.stella), _node()
    act = f"/fleet/nodes/{node.id.hex}/"
    for action, data, standing in (
        ("drain", {"minutes": "5"}, "draining"),
        ("undrain", {}, "active"),
        ("remove", {}, "removed"),
    ):
        assert stella.post(act + action, data).status_code == 302
        assert Node.objects.get().standing == standing
    assert stella.post(act + "explode").status_code == 404
    assert "n1" not in stella.get("/fleet").content.decode().split("<dialog")[0].split("</h1>")[1]


def test_wrong_values_are_told_by_name(cast: Cast) -> None:
    stella, node = signed_in(cast.stella), _node()
    act = f"/fleet/nodes/{node.id.hex}/"
    for minutes in ("soon", "", "-1", "²", "9" * 5_000):
        answer = stella.post(act + "drain", {"minutes": minutes}, follow=True)
        assert "Minutes: Must be a whole number" in answer.content.decode()
    pool = {"name": "default", "task": "generate", "role": "both"}
    answer = stella.post("/fleet/pools", {**pool, "nodes_min": "4", "nodes_max": "1"}, follow=True)
    assert "Nodes max: 4 nodes are configured to be kept warm" in answer.content.decode()
    answer = stella.post("/fleet/pools", {**pool, "nodes_min": "x", "nodes_max": "1"}, follow=True)
    assert "Nodes min: Enter a whole number" in answer.content.decode()
    pool |= {"nodes_min": "0", "nodes_max": "1"}
    for typed, told in (
        ("[", "Invalid JSON"),
        ("[" * 10_000, "Invalid JSON"),
        ("{}", "Expected `array`"),
        ("0", "Expected `array`"),
        ("[" + " " * 20_000 + "]", "at most 20000"),
    ):
        answer = stella.post("/fleet/pools", {**pool, "warm_schedule": typed}, follow=True)
        assert "Warm schedule: " in answer.content.decode() and told in answer.content.decode()
    assert Node.objects.get().standing == "active"


def test_more_models_than_a_token_names_are_told_at_the_field(cast: Cast) -> None:
    names = [f"m{number}" for number in range(ALLOWED_MODELS_MAX + 1)]
    for name in names:
        model = ModelDraft(
            name=name,
            task="generate",
            pool="default",
            context_window=64,
            output_tokens_default=8,
            output_tokens_max=8,
        )
        model_create(actor=OPERATOR, draft=model)
    wanted = {**_token_form(), "models": names}
    answer = signed_in(cast.stella).post("/fleet/tokens", wanted)
    assert answer.status_code == 422
    assert f"Select 1 to {ALLOWED_MODELS_MAX} models" in answer.content.decode()


def test_a_removed_node_has_no_list_of_models(cast: Cast) -> None:
    stella, node = signed_in(cast.stella), _node()
    act = f"/fleet/nodes/{node.id.hex}/"
    assert stella.post(act + "remove").status_code == 302
    answer = stella.post(act + "models", {"models": ["m"]}, follow=True)
    assert "n1 has no credential" in answer.content.decode()


def test_a_pool_without_room_keeps_none_when_its_form_is_saved(cast: Cast) -> None:
    stella = signed_in(cast.stella)
    pool_set(actor=OPERATOR, draft=PoolDraft(name="closed", nodes_max=0))
    form = stella.get("/fleet").content.decode().split('<dialog id="pool-closed"')[1]
    shown = re.findall(r'name="(\w+)"[^>]* type="number" value="(\d*)"', form)[:2]
    assert shown == [("nodes_min", "0"), ("nodes_max", "0")]


def test_a_quarantine_is_told_and_lifted(cast: Cast) -> None:
    stella, node = signed_in(cast.stella), _node()
    Node.objects.update(
        quarantined_until=timezone.now() + timedelta(minutes=5),
        quarantine_reason="undecodable frame",
    )
    text = stella.get("/fleet").content.decode()
    assert "quarantined" in text and "undecodable frame" in text
    stella.post(f"/fleet/nodes/{node.id.hex}/forgive")
    assert "undecodable frame" not in stella.get("/fleet").content.decode()


def test_a_node_whose_tenants_share_a_cache_is_told_before_it_is_approved_and_can_be_kept_out(
    cast: Cast,
) -> None:
    stella, node = signed_in(cast.stella), _node()
    link = {"node": node.id.hex, "facts": {"takes_jobs": True}}
    rows("SELECT fleet_links('gw', %s::jsonb, '{}'::jsonb)", json.dumps([link]))
    shared, held = "tenants share its prefix cache", "wants tenants&#x27; prefix caches kept apart"
    for facts, told in (({}, False), ({"separates_tenants": True}, False),
                        ({"separates_tenants": False}, True)):  # fmt: skip
        Node.objects.update(facts=facts, standing="pending")
        text = stella.get("/fleet").content.decode()
        assert "waits for your approval" in text and (shared in text) is told
    stella.post(f"/fleet/nodes/{node.id.hex}/approve")
    text = stella.get("/fleet").content.decode()
    assert shared in text and held not in text
    form = {
        "name": "default", "task": "generate", "role": "both",
        "nodes_min": "0", "nodes_max": "1", "separate_caches": "on",
    }  # fmt: skip
    stella.post("/fleet/pools", form)
    text = stella.get("/fleet").content.decode()
    assert held in text and "isolated caches only" in text
    Node.objects.update(state=NodeState.DRAINING)
    leaving = stella.get("/fleet").content.decode()
    assert held not in leaving and "its own process is ending" in leaving
    Node.objects.update(state=NodeState.CONNECTED)
    assert 'name="separate_caches" checked' in text
    Node.objects.update(facts={"separates_tenants": True})
    assert held not in stella.get("/fleet").content.decode()
    stella.post("/fleet/pools", form | {"separate_caches": ""})
    assert "isolated caches only" not in stella.get("/fleet").content.decode()


def test_a_list_of_models_is_replaced(cast: Cast) -> None:
    stella, node = signed_in(cast.stella), _node()
    path = f"/fleet/nodes/{node.id.hex}/models"
    stella.post(path, {"models": ["b", "a"]})
    assert NodeCredential.objects.get().allowed_models == ["a", "b"]
    stella.post(path, {})
    assert NodeCredential.objects.get().allowed_models is None


def test_digests_wait_on_the_page_until_they_are_decided(cast: Cast) -> None:
    stella = signed_in(cast.stella)
    row = ModelDigest.objects.create(model="m", digest="abcd" * 16, offered_by="n1")
    assert "abcdabcdabcdabcd…" in stella.get("/fleet").content.decode()
    stella.post(f"/fleet/digests/{row.id.hex}/approve")
    assert ModelDigest.objects.get().state == DigestState.APPROVED
    assert "abcdabcdabcdabcd…" not in stella.get("/fleet").content.decode()
    assert stella.post(f"/fleet/digests/{row.id.hex}/perhaps").status_code == 404


def test_what_moves_is_asked_for_alone_and_says_how_fresh_it_is(cast: Cast) -> None:
    told = {"running": 6, "waiting": 2, "step_us": 20_000, "breaker": "open", "credits": 8}
    link = {"node": _node().id.hex, "facts": {**told, "breaker_cause": "3 lost in a row"}}
    facts = {"rows_waiting": 4, "rows_dropped": 0, "series_dropped": 9, "written_s_ago": 1.5}
    late = {"rows_waiting": 0, "rows_dropped": 0, "series_dropped": 0, "written_s_ago": 90.0}
    for gateway, links, recorder in (("gw", [link], facts), ("old", [], late)):
        values = [gateway, json.dumps(links), json.dumps({"recorder": recorder})]
        rows("SELECT fleet_links(%s, %s::jsonb, %s::jsonb)", *values)
    stella = signed_in(cast.stella)
    answer = stella.get("/fleet", headers={"HX-Request": "true"})
    text = answer.content.decode()
    assert "HX-Request" in answer["Vary"] and "<html" not in text and "as of" in text
    for words in ("6 + 2", ">300<", "3 lost in a row", "incomplete", "late", ">9<"):
        assert words in text, words
    whole = stella.get("/fleet").content.decode()
    assert 'data-poll="2000"' in whole and "3 lost in a row" in whole


def test_limits_that_are_not_shared_are_told_where_people_look(cast: Cast) -> None:
    stella = signed_in(cast.stella)
    for shared, told in ((True, False), (False, True)):
        waiting = json.dumps({"limits_shared": shared})
        rows("SELECT fleet_links('gw', '[]'::jsonb, %s::jsonb)", waiting)
        for client, path in ((stella, "/fleet"), (signed_in(cast.alice), "/")):
            assert ("Degraded: 1 gateway" in client.get(path).content.decode()) is told


def test_roofline_use_is_told_in_words_and_not_known_of_engines_that_cannot_say(
    cast: Cast,
) -> None:
    node, silent = _node(), node_credential_create(actor=OPERATOR, name="n2", pool="default")
    node.facts = {"ceilings": {"read_bytes_s": 3.35e12, "flop_s": 9.9e14, "source": "torch"}}
    node.save()
    links = [
        {"node": node.id.hex, "facts": {"decode_share": 0.412, "prefill_share": None}},
        {"node": silent.credential.node.id.hex, "facts": {"running": 1}},
    ]
    told = ["gw", json.dumps(links), json.dumps({})]
    rows("SELECT fleet_links(%s, %s::jsonb, %s::jsonb)", *told)
    text = signed_in(cast.stella).get("/fleet", headers={"HX-Request": "true"}).content.decode()
    assert 'title="decode, of 3,350 GB/s; torch">41.2 % bandwidth<' in text
    assert 'title="prefill, of 990 TFLOP/s; torch">no prefill yet<' in text
    assert text.count(">not known</span>") == 1


def test_what_a_node_computes_with_is_told_and_why_it_is_slow(cast: Cast) -> None:
    node = _node()
    stella = signed_in(cast.stella)
    path = {"kernels": "torch", "slow": "no <C> compiler", "decode_tokens_s": 251.4,
            "prefill_tokens_s": 4_630.0}  # fmt: skip
    ceilings = {"read_bytes_s": 1.1e11, "flop_s": 1e12, "source": "torch"}
    own, rates = {"engine": "compact", "device": "cpu"}, ["alone 251", "prefill 4,630"]
    limits = ["of 110 GB/s", "of 1.00 TFLOP/s"]
    for facts, hints, slow in (
        (own, ["compact on cpu"], False),
        (own | {"path": None, "ceilings": ceilings}, ["compact on cpu", *limits], False),
        (own | {"path": path}, ["compact on cpu, torch", "no &lt;C&gt; compiler", *rates], True),
        (own | {"path": path | {"slow": ""}, "ceilings": ceilings},
         ["compact on cpu, torch", *rates, *limits], False),
        ({"engine": "vllm", "path": {"kernels": "vllm"}}, ["vllm"], False),
    ):  # fmt: skip
        Node.objects.filter(id=node.id).update(facts=facts)
        text = stella.get("/fleet", headers={"HX-Request": "true"}).content.decode()
        row = text[text.index('<th scope="row" data-label="Node">') :].split("</tr>")[0]
        shown = re.findall(r'<div class="hint">([^<]*)</div>', row)
        assert [each for each in shown if each != "was never connected"] == hints
        assert ('<span class="status warn">slow</span>' in row) is slow


def test_sheds_and_retries_are_told_by_pool_and_by_the_rule_that_sent_them_there(
    cast: Cast,
) -> None:
    full = {"status": 503, "error_code": "server_is_overloaded", "finish": ""}
    store([
        make_record(route="direct", pool="default"),
        make_record(route="cheap v3", pool="default", finish="length"),
        make_record(route="cheap v3", pool="gold", retries=2),
        make_record(route="steady v1", pool="gold", status=499, finish=""),
        *(make_record(route="cheap v3", pool="gold", **full) for _ in range(3)),
    ])  # fmt: skip
    stella = signed_in(cast.stella)
    files = {
        name: stella.get(f"/fleet/{name}.csv?range=1h").content.decode().splitlines()
        for name in ("pools", "rules")
    }
    ends = "Answered,Stopped at max_tokens,Refused for lack of capacity,Retried,Cancelled by client"
    assert files["pools"] == [f"Pool,{ends}", "default,2,1,0,0,0", "gold,1,0,3,2,1"]
    rules = ["cheap v3,2,1,3,2,0", "direct,1,0,0,0,0", "steady v1,0,0,0,0,1"]
    assert files["rules"] == [f"Rule and version,{ends}", *rules]
    text = stella.get("/fleet?range=1h").content.decode()
    assert "Request outcomes, by routing rule" in text
    assert re.search('<th data-label="Rule and version"[^>]*>cheap v3</th>', text)


def test_without_a_gateway_it_says_that_figures_stand_still(cast: Cast) -> None:
    text = signed_in(cast.stella).get("/fleet").content.decode()
    assert "No gateway has reported" in text
