"""Alerts are acknowledged, assigned and silenced with an end; a channel is tried out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.core import mail
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from pytest import MonkeyPatch

from controlplane.core.permissions import Role, organization_scope
from controlplane.slos import evaluate, handling, selectors, services
from controlplane.slos.channels import messages, words
from controlplane.slos.models import EVERYONE, Alert, Objective, Silence
from controlplane.slos.standings import floor
from controlplane.tenants.models import User
from controlplane.tenants.people.services import membership_set
from tests.support.money import rows
from tests.support.objectives import Receiver, count, draft, receiver
from tests.support.people import Cast, make_cast

NOW = floor(datetime.now(UTC), 60)
A_MINUTE = timedelta(minutes=1)


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


@pytest.fixture
def objective(cast: Cast) -> Objective:
    return services.objective_create(
        actor=cast.alice, organization=cast.acme.id, draft=draft(rules=("page_quick",), email="")
    )


@pytest.fixture
def hooks(monkeypatch: MonkeyPatch) -> Iterator[Receiver]:
    with receiver() as server:
        monkeypatch.setattr(settings, "WEBHOOKS_PRIVATE", True)
        monkeypatch.setattr(settings, "EMAIL_HOST", "mail.example.org")
        monkeypatch.setattr(settings, "PAGES_URL", "https://sluice.example.org")
        yield server


def _burn(objective: Objective, until: datetime, *, good: int = 0) -> None:
    for back in range(70):
        count(objective, until - back * A_MINUTE, good=good, total=100)


def _fired(objective: Objective) -> Alert:
    _burn(objective, NOW)
    evaluate.objectives_evaluate(NOW)
    return _alert(objective)


def _alert(objective: Objective) -> Alert:
    with organization_scope([objective.organization]):
        return Alert.objects.select_related("objective").get(objective=objective)


def _events() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = rows(
        "SELECT event, address FROM slo_deliveries ORDER BY created_at, event"
    )
    return found


def test_the_first_to_acknowledge_is_kept(cast: Cast, objective: Objective) -> None:
    alert = _fired(objective)
    of = {"organization": cast.acme.id, "alert_id": alert.id}
    assert handling.alert_acknowledge(actor=cast.bob, **of)
    assert not handling.alert_acknowledge(actor=cast.alice, **of)
    kept = _alert(objective)
    assert kept.acknowledged_by == cast.bob.actor_label and kept.acknowledged_at
    told = rows("SELECT count(*) FROM audit_entries WHERE action = 'slo_alert.acknowledge'")
    assert told == [(1,)]


def test_only_who_builds_may_handle_and_only_what_is_of_their_organization(
    cast: Cast, objective: Objective
) -> None:
    alert = _fired(objective)
    of: dict[str, Any] = {"organization": cast.acme.id, "alert_id": alert.id}
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.stella, role=Role.VIEWER)
    looks_on = User.objects.get(id=cast.stella.id)
    for act in (
        lambda: handling.alert_acknowledge(actor=looks_on, **of),
        lambda: handling.alert_assign(actor=looks_on, email="", **of),
        lambda: handling.objective_silence(actor=looks_on, objective=objective, minutes=5),
    ):
        with pytest.raises(PermissionDenied):
            act()
    with pytest.raises(ObjectDoesNotExist):
        handling.alert_acknowledge(
            actor=cast.charlie, organization=cast.other.id, alert_id=alert.id
        )
    with pytest.raises(ObjectDoesNotExist):
        handling.objective_silence(actor=cast.charlie, objective=objective, minutes=5)


def test_anyone_who_handles_may_take_an_alert_and_an_admin_gives_it_to_a_member(
    cast: Cast, objective: Objective, hooks: Receiver
) -> None:
    alert = _fired(objective)
    of: dict[str, Any] = {"organization": cast.acme.id, "alert_id": alert.id}
    assert handling.alert_assign(actor=cast.bob, email=cast.bob.email, **of).assignee
    assert _events() == [], "who takes it need not be told"
    with pytest.raises(PermissionDenied):
        handling.alert_assign(actor=cast.bob, email=cast.alice.email, **of)
    for wrong in (cast.charlie.email, "nobody@example.org", "x"):
        with pytest.raises(ValidationError) as caught:
            handling.alert_assign(actor=cast.alice, email=wrong, **of)
        assert set(caught.value.message_dict) == {"email"}
    handling.alert_assign(actor=cast.alice, email=cast.bob.email, **of)
    assert messages.messages_send() == 1
    assert [(one.subject, one.bcc) for one in mail.outbox] == [
        ("Objective answers: assigned to you", [cast.bob.email])
    ]
    mail.outbox.clear()
    assert handling.alert_assign(actor=cast.alice, email="", **of).assignee == ""


def test_a_silence_keeps_new_alerts_back_and_tells_what_still_fires_when_it_ends(
    cast: Cast, objective: Objective, hooks: Receiver
) -> None:
    services.channel_add(
        actor=cast.alice, organization=cast.acme.id, kind="slack", address=hooks.url
    )
    handling.objective_silence(actor=cast.bob, objective=objective, minutes=60, reason="upgrade")
    alert = _fired(objective)
    assert alert.muted and _events() == []
    evaluate.objectives_evaluate(NOW)
    assert _events() == []
    kept = selectors.silences(actor=cast.bob, organization=cast.acme.id)[objective.id]
    assert (kept.by, kept.reason) == (cast.bob.actor_label, "upgrade")
    handling.objective_silence(actor=cast.bob, objective=objective, minutes=0)
    assert selectors.silences(actor=cast.bob, organization=cast.acme.id) == {}
    # By now the minutes of the first burn may be long over.
    now = floor(datetime.now(UTC), 60)
    _burn(objective, now)
    evaluate.objectives_evaluate(now + A_MINUTE)
    assert _events() == [("firing", "")] and not _alert(objective).muted


def test_what_was_silenced_and_acknowledged_or_is_over_is_never_told(
    cast: Cast, objective: Objective
) -> None:
    services.channel_add(
        actor=cast.alice, organization=cast.acme.id, kind="email", address="ops@example.org"
    )
    handling.objective_silence(actor=cast.bob, objective=objective, minutes=60)
    alert = _fired(objective)
    handling.alert_acknowledge(actor=cast.bob, organization=cast.acme.id, alert_id=alert.id)
    handling.objective_silence(actor=cast.bob, objective=objective, minutes=0)
    evaluate.objectives_evaluate(datetime.now(UTC))
    assert _events() == []
    later = NOW + 80 * A_MINUTE
    _burn(objective, later, good=100)
    evaluate.objectives_evaluate(later)
    assert _alert(objective).state == "recovered" and _events() == []


def test_one_silence_holds_at_a_time_and_a_week_is_the_most(
    cast: Cast, objective: Objective
) -> None:
    for minutes in (10, 20):
        handling.objective_silence(actor=cast.bob, objective=objective, minutes=minutes)
    with organization_scope([cast.acme.id]):
        assert Silence.objects.filter(until__gt=datetime.now(UTC)).count() == 1
    for minutes in (-1, handling.SILENCE_MIN_MAX + 1):
        with pytest.raises(ValidationError, match="Must be 0 to"):
            handling.objective_silence(actor=cast.bob, objective=objective, minutes=minutes)
    with pytest.raises(ValidationError, match="characters"):
        handling.objective_silence(
            actor=cast.bob, objective=objective, minutes=5, reason="x" * 1_000
        )


def test_a_test_is_sent_and_stands_in_the_list_with_what_came_of_it(
    cast: Cast, hooks: Receiver
) -> None:
    channel = services.channel_add(
        actor=cast.alice, organization=cast.acme.id, kind="webhook", address=hooks.url
    )
    of: dict[str, Any] = {"organization": cast.acme.id, "channel_id": channel.id}
    with pytest.raises(PermissionDenied):
        handling.channel_test(actor=cast.bob, **of)
    handling.channel_test(actor=cast.alice, **of)
    with pytest.raises(ValidationError, match="still being sent"):
        handling.channel_test(actor=cast.alice, **of)
    hooks.statuses = [503]
    assert messages.messages_send() == 0
    (waiting,) = selectors.delivery_list(actor=cast.alice, organization=cast.acme.id)
    assert (waiting.event, waiting.error, waiting.sent_at) == ("test", "answered 503", None)
    rows("UPDATE slo_deliveries SET due_at = now()")
    assert messages.messages_send() == 1
    (sent,) = selectors.delivery_list(actor=cast.alice, organization=cast.acme.id)
    assert sent.sent_at and sent.attempts == 2
    body = msgspec.json.decode(hooks.received[-1].body)
    assert body["event"] == "alert.test" and "test" in body["summary"]
    assert body["link"] == "https://sluice.example.org/slos"
    assert "Sluice-Signature" in hooks.received[-1].headers


def test_a_message_says_it_in_a_sentence_with_rounded_rates_and_whole_addresses(
    monkeypatch: MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "PAGES_URL", "https://sluice.example.org")
    made = Objective(organization=EVERYONE, period_days=30, absent_after_min=60, runbook="ttft",
                     indicator="availability", name="answers", target_ppm=990_000)  # fmt: skip
    alert = Alert(objective=made, severity="page", rule="page_quick",
                  burn_long=49.23456789, burn_short=100 / 3, created_at=NOW)  # fmt: skip
    told = words.payload(alert, "firing", alert.id)
    assert told["summary"] == (
        "Objective answers: at risk. Its error budget burned 49.2 times as fast as it may over 1 h:"
        " at this rate the whole budget of 30 days lasts 14.6 hours."
    )
    assert told["burn_rate"] == {"long": 49.2, "short": 33.3}
    page = f"https://sluice.example.org/slos/objective_{made.id.hex}?alert=alert_{alert.id.hex}"
    assert (told["link"], told["runbook"]) == (page, "https://sluice.example.org/runbooks/ttft")
    alert.burn_long, alert.rule = 3.0, "ticket_slow"
    assert words.sentence(alert, "firing").endswith("over 3 days: at this rate the whole budget of"
                                                    " 30 days lasts 10 days.")  # fmt: skip
    alert.recovered_at = NOW + timedelta(minutes=95)
    assert words.sentence(alert, "recovered") == "It recovered after 1 h 35 min."
    alert.severity, alert.burn_long = "absent", None
    assert words.sentence(alert, "firing") == "No request has counted for 60 minutes."
