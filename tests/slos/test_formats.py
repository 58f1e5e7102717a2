"""Messages in the forms of Teams, PagerDuty and Opsgenie: one alert there for each of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.core.exceptions import ValidationError

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.kernel.ids import public_id
from controlplane.slos import services
from controlplane.slos.channels import messages
from controlplane.slos.models import EVERYONE, Alert
from tests.support.money import rows
from tests.support.objectives import Receiver, draft, receiver

KEY = "0123456789abcdef0123456789abcdef"
NAME = "answers"


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiver() as server:
        monkeypatch.setattr(settings, "WEBHOOKS_PRIVATE", True)
        monkeypatch.setattr(settings, "PAGES_URL", "https://sluice.example.org")
        yield server


def told(database: str, hooks: Receiver, kind: str, address: str) -> tuple[str, list[Any]]:
    """The alert's id, and what came of its beginning, its acknowledgement and its end."""
    objective = services.objective_create(
        actor=OPERATOR, organization=EVERYONE, draft=draft(name=NAME, email="")
    )
    services.channel_add(actor=OPERATOR, organization=EVERYONE, kind=kind, address=address)
    alert = Alert(
        organization=EVERYONE, objective=objective, severity="page", rule="page_quick",
        burn_long=20.0, burn_short=20.0,
    )  # fmt: skip
    for event in ("firing", "recovered"):
        with organization_scope([EVERYONE]):
            alert.save()
            messages.messages_queue(alert, event, alert.created_at)
        assert messages.messages_send() == 1
    return public_id("alert", alert.id), [
        (one.path, one.headers, msgspec.json.decode(one.body)) for one in hooks.received
    ]


def test_pagerduty_opens_and_resolves_one_alert(database: str, hooks: Receiver) -> None:
    alert, ((path, _, first), (_, _, last)) = told(
        database, hooks, "pagerduty", f"{hooks.url}#{KEY}"
    )
    assert KEY not in path
    assert first["routing_key"] == last["routing_key"] == KEY
    assert (first["event_action"], last["event_action"]) == ("trigger", "resolve")
    assert first["dedup_key"] == last["dedup_key"] == alert
    assert first["payload"]["severity"] == "critical" and NAME in first["payload"]["summary"]
    assert first["links"][0]["href"].startswith("https://sluice.example.org/slos/")
    kept = rows("SELECT shown FROM slo_channels")
    assert KEY not in str(kept) and kept[0][0].endswith(KEY[-4:])


def test_opsgenie_opens_and_closes_one_alert(database: str, hooks: Receiver) -> None:
    address = hooks.url.partition("?")[0]
    alert, ((path, headers, first), (closed, _, _)) = told(
        database, hooks, "opsgenie", f"{address}#{KEY}"
    )
    assert (path, closed) == ("/hook", f"/hook/{alert}/close?identifierType=alias")
    assert headers["Authorization"] == f"GenieKey {KEY}"
    assert (first["alias"], first["priority"]) == (alert, "P1") and NAME in first["message"]


def test_teams_gets_a_card(database: str, hooks: Receiver) -> None:
    _, ((_, _, first), _) = told(database, hooks, "teams", hooks.url)
    (attached,) = first["attachments"]
    assert attached["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attached["content"]
    assert NAME in card["body"][0]["text"] and len(card["body"]) > 3
    assert card["actions"][0]["url"].startswith("https://sluice.example.org/slos/")


@pytest.mark.parametrize("kind", ["pagerduty", "opsgenie"])
def test_a_key_is_required(database: str, hooks: Receiver, kind: str) -> None:
    with pytest.raises(ValidationError, match="Must end in #"):
        services.channel_add(actor=OPERATOR, organization=EVERYONE, kind=kind, address=hooks.url)
