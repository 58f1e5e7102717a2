"""Pages of objectives, stages and runbooks: made and changed by their forms, read as CSV."""

from __future__ import annotations

import csv
import re
import uuid
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.test import Client

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.kernel.ids import public_id
from controlplane.slos import evaluate, selectors, services
from controlplane.slos.channels.delivery import signing_secret
from controlplane.slos.models import EVERYONE, Alert, Channel, Objective
from controlplane.slos.runbooks import runbook_slugs
from controlplane.tenants.models import User
from tests.support.objectives import count, draft
from tests.support.people import Cast, make_cast, signed_in
from tests.support.records import make_record
from tests.support.traffic import store

FORM = {
    "name": "first token",
    "indicator": "ttft",
    "threshold": "300",
    "target": "99.5",
    "team": "platform",
}


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


@pytest.fixture
def alice(cast: Cast) -> Client:
    """Owns Acme, and runs the installation."""
    User.objects.filter(id=cast.alice.id).update(is_staff=True)
    return signed_in(User.objects.get(id=cast.alice.id))


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def objectives(organization: object) -> list[Objective]:
    with organization_scope([organization]):  # type: ignore[list-item]
        return list(Objective.objects.order_by("created_at"))


def test_an_objective_is_made_changed_and_ended_by_its_forms(cast: Cast, alice: Client) -> None:
    assert "No objective yet" in page(alice, "/slos")
    made = alice.post("/slos/new", FORM, follow=True).content.decode()
    assert "Gateways count for it" in made and "300 ms at most" in made
    first = objectives(cast.acme.id)[0]
    assert (first.threshold, first.target_ppm, first.runbook) == (300_000, 995_000, "ttft")
    address = f"/slos/{first.id.hex}"
    told = alice.post(f"{address}/change", FORM | {"threshold": "250"}, follow=True)
    assert "Version 2 starts with new counts" in told.content.decode()
    told = alice.post(f"{address}/change", FORM | {"target": "ninety"}, follow=True)
    assert "Target: A number such as" in told.content.decode()
    wrong = {**FORM, "name": "x", "target": "90", "rules": "page_quick"}
    assert (
        "page_quick can never fire" in alice.post("/slos/new", wrong, follow=True).content.decode()
    )
    ended = alice.post(f"{address}/change", {"end": "1"}, follow=True).content.decode()
    assert "first token has ended" in ended
    assert alice.get(address).status_code == 404


def test_staff_see_the_installation_and_its_alerts(
    cast: Cast, alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = services.objective_create(
        actor=OPERATOR, organization=EVERYONE, draft=draft(shed_priority=0)
    )
    now = datetime.now(UTC)
    with organization_scope([EVERYONE]):
        Objective.objects.update(created_at=now - timedelta(minutes=1))
    for back in range(40):
        at = now - timedelta(minutes=back)
        count(made, at, good=0 if back < 10 else 100, total=100)
    evaluate.objectives_evaluate(now)
    index = page(alice, "/slos")
    assert "breaching" in index and "priority low is shed" in index
    detail = page(alice, f"/slos/{made.id.hex}")
    assert "Error budget left" in detail and "Fast burn (page)" in detail and "14.4" in detail
    rows = list(csv.DictReader(StringIO(page(alice, "/slos.csv"))))
    assert (rows[0]["Of"], rows[0]["Good"], rows[0]["Counted"]) == ("Installation", "3000", "4000")
    assert float(rows[0]["Burn rate 1 h"]) == pytest.approx(25.0)
    burn = list(csv.reader(StringIO(page(alice, f"/slos/{made.id.hex}.csv"))))
    assert burn[-1][1] == "-2400"
    # It is told however many have begun, and recovered, since.
    gone = Alert(organization=EVERYONE, objective=made, severity="page", state="recovered")
    gone.created_at = gone.recovered_at = now + timedelta(minutes=1)
    monkeypatch.setattr(selectors, "ALERTS_SHOWN_MAX", 1)
    with organization_scope([EVERYONE]):
        gone.save()
    runbook = page(alice, f"/runbooks/{made.runbook}")
    assert "Firing since" in runbook and "times as fast as it may" in runbook
    assert f"/slos/{public_id('objective', made.id)}?alert=" in runbook
    # From where it was made to now: no line before that, and no moment twice.
    assert len({moment for moment, _ in burn}) == len(burn)
    # A member who runs nothing sees neither it nor its alert.
    bob = signed_in(cast.bob)
    assert "Firing since" not in page(bob, f"/runbooks/{made.runbook}")
    assert "Installation" not in page(bob, "/slos")
    assert bob.get(f"/slos/{made.id.hex}").status_code == 404


def test_a_webhooks_secret_is_shown_once(cast: Cast, alice: Client) -> None:
    form = {"kind": "webhook", "address": "https://hooks.example.org/sluice"}
    answer = alice.post("/slos/channels", form)
    with organization_scope([cast.acme.id]):
        channel = Channel.objects.get()
    secret = signing_secret(channel.id)
    assert secret in answer.content.decode() and "no-store" in answer["Cache-Control"]
    assert secret not in page(alice, "/slos") and "hooks.example.org/…" in page(alice, "/slos")
    assert form["address"] not in page(alice, "/slos")
    told = alice.post("/slos/channels", form | {"address": "http://10.0.0.1/"}, follow=True)
    assert "https:// only" in told.content.decode()
    assert "SLUICE_WEBHOOKS_PRIVATE=true" in told.content.decode()
    alice.post(f"/slos/channels/{channel.id.hex}")
    assert "hooks.example.org" not in page(alice, "/slos")


def test_every_alert_has_a_runbook_that_can_be_read(alice: Client) -> None:
    listed = re.findall(r'href="/runbooks/([a-z0-9-]+)"', page(alice, "/runbooks"))
    assert sorted(listed) == list(runbook_slugs())
    for slug in listed:
        text = page(alice, f"/runbooks/{slug}")
        assert "<h2>Look</h2>" in text and "<h2>Do</h2>" in text and "<li>" in text
    assert alice.get("/runbooks/none").status_code == 404


def test_objectives_go_out_and_in_as_openslo(cast: Cast, alice: Client) -> None:
    alice.post("/slos/new", FORM)
    text = page(alice, "/slos/openslo")
    assert "apiVersion: openslo/v1" in text
    form = {"of": "installation", "yaml": text}
    told = alice.post("/slos/openslo", form, follow=True).content.decode()
    assert "1 created, 0 updated" in told
    assert page(alice, "/slos/openslo?of=installation") == text
    told = alice.post("/slos/openslo", form | {"yaml": "{"}, follow=True).content.decode()
    assert "Yaml: Invalid YAML" in told
    assert signed_in(cast.bob).get("/slos/openslo?of=installation").status_code == 403


def test_an_alert_leads_to_the_worst_requests_of_its_window_and_what_they_share(
    cast: Cast, alice: Client
) -> None:
    objective = services.objective_create(
        actor=OPERATOR,
        organization=cast.acme.id,
        draft=draft(indicator="ttft", threshold=50_000, rules=("page_quick",)),
    )
    of = {"organization": cast.acme.id.hex, "project": cast.project.id.hex}
    slow = [make_record(**of, ttft_us=900_000 + place, node="node-2") for place in range(10)]
    store([*slow, *(make_record(**of) for _ in range(30))])
    now = datetime.now(UTC)
    for back in range(6):
        count(objective, now - timedelta(minutes=back), good=0, total=100)
    evaluate.objectives_evaluate(now)
    listed = page(alice, "/slos")
    (link,) = re.findall(r'href="(/slos/[^"]+[?]alert=alert_[^"#]+)#worst-title"', listed)
    text = " ".join(page(alice, link).split())
    assert "All 10 were on node-2, and 0 % of the others." in text
    assert text.index("900 ms") and "40 requests" in text
    worst = public_id("req", uuid.UUID(bytes=slow[-1].request))
    assert f'href="/requests/{worst}"' in text
    # Someone who does not run the installation is told of no node.
    told = page(signed_in(cast.bob), link)
    assert "node-2" not in told and worst in told
