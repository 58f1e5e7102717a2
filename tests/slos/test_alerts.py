"""Alerts on a real database: they begin, act, are told once, and recover."""

from __future__ import annotations

import hmac
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.core import mail
from pytest import MonkeyPatch

from controlplane.core import outbound
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.core.versions.models import State
from controlplane.kernel.objectives.burn import Count
from controlplane.routing.selectors import ruleset_in_force, ruleset_on_trial
from controlplane.routing.services import RuleVersions
from controlplane.slos import evaluate, selectors, services, upkeep
from controlplane.slos.channels import delivery as channels
from controlplane.slos.channels import messages
from controlplane.slos.models import EVERYONE, Alert, Channel, Delivery, Objective
from controlplane.slos.standings import floor
from tests.support.money import rows
from tests.support.objectives import Receiver, count, draft, receiver
from tests.support.people import make_cast
from tests.support.rules import generates, make_models

NOW = floor(datetime.now(UTC), 60)
A_MINUTE = timedelta(minutes=1)


@pytest.fixture
def objective(database: str) -> Objective:
    return services.objective_create(
        actor=OPERATOR, organization=EVERYONE, draft=draft(shed_priority=0, rules=("page_quick",))
    )


def outage(objective: Objective, *, until: datetime = NOW, minutes: int = 10) -> None:
    """Good traffic for an hour, then nothing but failures."""
    for back in range(60):
        at = until - back * A_MINUTE
        count(objective, at, good=0 if back < minutes else 100, total=100)


def alerts() -> list[tuple[str, str, str]]:
    with organization_scope([EVERYONE]):
        return [(one.severity, one.rule, one.state) for one in Alert.objects.order_by("created_at")]


def test_an_alert_begins_once_and_recovers(objective: Objective) -> None:
    outage(objective)
    assert evaluate.objectives_evaluate(NOW) == 1
    assert evaluate.objectives_evaluate(NOW) == 0
    assert alerts() == [("page", "page_quick", "firing")]
    assert [one["id"] for one in snapshot()["objectives"]] == [objective.id.hex]
    later = NOW + 8 * A_MINUTE
    for back in range(6):
        count(objective, later - back * A_MINUTE, good=100, total=100)
    assert evaluate.objectives_evaluate(NOW + 4 * A_MINUTE) == 0
    # The hour still burns at 14; the five minutes since are good.
    assert evaluate.objectives_evaluate(later) == 1
    assert alerts() == [("page", "page_quick", "recovered")]
    with organization_scope([EVERYONE]):
        acts = Alert.objects.get().acts
    assert acts == [
        "priority low is shed",
        "priority low stays shed until all other objectives have been healthy for 10 min",
    ]
    told = rows(
        "SELECT action FROM audit_entries WHERE actor_label = 'objective watch' ORDER BY id"
    )
    assert told == [("slo_alert.fire",), ("slo_hold.begin",), ("slo_alert.recover",)]


def test_a_ticket_follows_a_page_and_does_not_double_it(database: str) -> None:
    objective = services.objective_create(actor=OPERATOR, organization=EVERYONE, draft=draft())
    outage(objective)
    assert evaluate.objectives_evaluate(NOW) == 1
    later = NOW + 35 * A_MINUTE
    for back in range(33):
        count(objective, later - back * A_MINUTE, good=100, total=100)
    # Without a day of good traffic behind it, the day still burns.
    assert evaluate.objectives_evaluate(later) == 2
    assert alerts() == [
        ("page", "page_quick", "recovered"), ("ticket", "ticket_quick", "firing"),
    ]  # fmt: skip
    # More failures: the ticket stays beside the page that begins anew.
    outage(objective, until=later + 10 * A_MINUTE)
    assert evaluate.objectives_evaluate(later + 10 * A_MINUTE) == 1
    assert [one[2] for one in alerts()] == ["recovered", "firing", "firing"]


def test_a_canary_is_stopped_and_named_rules_are_published(database: str) -> None:
    make_models("small", "large")
    first, second = (generates("all", name) for name in ("small", "large"))
    RuleVersions(OPERATOR).publish(RuleVersions(OPERATOR).draft_create([first]))
    RuleVersions(OPERATOR).publish(RuleVersions(OPERATOR).draft_create([second]))
    trial = RuleVersions(OPERATOR).draft_create([first])
    RuleVersions(OPERATOR).canary_start(trial, share_permille=100)
    objective = services.objective_create(
        actor=OPERATOR,
        organization=EVERYONE,
        draft=draft(stop_canary=True, shift_version=1, rules=("page_quick",)),
    )
    outage(objective)
    evaluate.objectives_evaluate(NOW)
    trial.refresh_from_db()
    assert (ruleset_on_trial(), trial.state) == (None, State.RETIRED)
    present = ruleset_in_force()
    assert present is not None and present.copy_of is not None
    assert (present.version, present.copy_of.version) == (4, 1)
    with organization_scope([EVERYONE]):
        assert Alert.objects.get().acts == [
            "canary 3 was stopped and stays stopped",
            "rules 1 were published as 4; they stay live",
        ]


def test_data_that_stay_away_raise_an_alert_of_their_own(objective: Objective) -> None:
    count(objective, NOW, good=100, total=100)
    assert evaluate.objectives_evaluate(NOW + 59 * A_MINUTE) == 0
    assert evaluate.objectives_evaluate(NOW + 61 * A_MINUTE) == 1
    # It does not end by getting old.
    assert evaluate.objectives_evaluate(NOW + timedelta(days=4)) == 0
    assert alerts() == [("absent", "absent", "firing")]
    count(objective, NOW + timedelta(days=4), good=1, total=1)
    assert evaluate.objectives_evaluate(NOW + timedelta(days=4)) == 1
    assert alerts() == [("absent", "absent", "recovered")]


def test_alerts_of_a_paused_or_ended_objective_recover(objective: Objective) -> None:
    outage(objective)
    evaluate.objectives_evaluate(NOW)
    services.objective_end(actor=OPERATOR, objective=objective)
    assert evaluate.objectives_evaluate(NOW) == 1
    assert alerts()[0][2] == "recovered"
    assert snapshot()["objectives"] == []


def test_windows_are_the_same_from_longer_steps(objective: Objective) -> None:
    """Minutes of two gateways, some older than the minutes that are read."""
    # The reading goes by the clock, and this module may have been imported long ago.
    now = floor(datetime.now(UTC), 60)
    ages = [timedelta(minutes=3), timedelta(hours=8), timedelta(days=2), timedelta(days=9)]
    for age in ages:
        for number in (1, 2):
            count(
                objective, now - age, good=90, total=100,
                writer=objective.id if number == 1 else EVERYONE,
            )  # fmt: skip
    # Each run goes on to the next that was counted.
    for _ in ages:
        upkeep.counts_roll_up(now)
    standing = selectors.objective_standings(actor=OPERATOR, organization=EVERYONE)[0]
    assert [standing.window(minutes) for minutes in (5, 360, 1_440, 4_320)] == [
        Count(180, 200), Count(180, 200), Count(360, 400), Count(540, 600),
    ]  # fmt: skip
    assert standing.period == Count(720, 800)
    assert standing.left == pytest.approx(-9.0)
    # Minutes older than four days go, and 5 minutes older than eight; their sums stay.
    assert upkeep.counts_forget(now) == 3
    again = selectors.objective_standings(actor=OPERATOR, organization=EVERYONE)[0]
    assert again.period == Count(720, 800)


@pytest.fixture
def hooks(monkeypatch: MonkeyPatch) -> Iterator[Receiver]:
    with receiver() as server:
        monkeypatch.setattr(settings, "WEBHOOKS_PRIVATE", True)
        monkeypatch.setattr(settings, "EMAIL_HOST", "mail.example.org")
        monkeypatch.setattr(settings, "PAGES_URL", "https://sluice.example.org")
        yield server


def test_each_channel_is_told_once_signed_and_tried_again(
    objective: Objective, hooks: Receiver
) -> None:
    webhook, _ = (
        services.channel_add(actor=OPERATOR, organization=EVERYONE, kind=kind, address=hooks.url)
        for kind in ("webhook", "slack")
    )
    outage(objective)
    evaluate.objectives_evaluate(NOW)
    hooks.statuses = [500, 200]
    assert messages.messages_send() == 2
    refused = rows("SELECT attempts, error FROM slo_deliveries WHERE sent_at IS NULL")
    assert refused == [(1, "answered 500")]
    rows("UPDATE slo_deliveries SET due_at = now() WHERE sent_at IS NULL")
    assert messages.messages_send() == 1
    assert messages.messages_send() == 0
    by_kind = {b"Sluice-Signature" if "Sluice-Signature" in one.headers else b"": one
               for one in hooks.received}  # fmt: skip
    signed = by_kind[b"Sluice-Signature"]
    body = msgspec.json.decode(signed.body)
    assert (body["event"], body["severity"], body["rule"]) == (
        "alert.firing", "page", "page_quick",
    )  # fmt: skip
    runbook = "https://sluice.example.org/runbooks/availability"
    assert (body["owner"]["team"], body["runbook"]) == ("platform", runbook)
    stamp, _, made = signed.headers["Sluice-Signature"].partition(",v1=")
    secret = channels.signing_secret(webhook.id).encode()
    expected = hmac.new(secret, stamp[2:].encode() + b"." + signed.body, sha256).hexdigest()
    assert made == expected
    text = msgspec.json.decode(by_kind[b""].body)["text"]
    assert "Objective answers: at risk" in text and "is shed" in text
    assert f"runbook: {runbook}" in text
    assert [(one.subject, one.bcc) for one in mail.outbox] == [
        ("Objective answers: at risk", ["platform@example.org"])
    ]
    mail.outbox.clear()
    for back in range(10):
        count(objective, NOW + (20 - back) * A_MINUTE, good=100, total=100)
    evaluate.objectives_evaluate(NOW + 20 * A_MINUTE)
    rows("UPDATE slo_deliveries SET due_at = now() WHERE sent_at IS NULL")
    assert messages.messages_send() == 3
    assert mail.outbox[0].subject == "Objective answers: recovered"
    mail.outbox.clear()


def test_a_message_is_given_up_after_its_last_try(objective: Objective, hooks: Receiver) -> None:
    services.channel_add(actor=OPERATOR, organization=EVERYONE, kind="webhook", address=hooks.url)
    outage(objective)
    evaluate.objectives_evaluate(NOW)
    hooks.statuses = [503] * 20
    for _ in range(messages.ATTEMPTS_MAX + 1):
        messages.messages_send()
        rows(
            "UPDATE slo_deliveries SET due_at = now()"
            " WHERE sent_at IS NULL AND due_at < now() + interval '1 year'"
        )
    mail.outbox.clear()
    assert len(hooks.received) == messages.ATTEMPTS_MAX


def test_no_message_goes_into_a_private_network(
    objective: Objective, hooks: Receiver, monkeypatch: MonkeyPatch
) -> None:
    services.channel_add(actor=OPERATOR, organization=EVERYONE, kind="webhook", address=hooks.url)
    monkeypatch.setattr(settings, "WEBHOOKS_PRIVATE", False)
    outage(objective)
    evaluate.objectives_evaluate(NOW)
    messages.messages_send()
    mail.outbox.clear()
    assert hooks.received == []
    with organization_scope([EVERYONE]):
        assert "private address" in Delivery.objects.get(kind="webhook").error
        channel = Channel.objects.get()
    services.channel_remove(actor=OPERATOR, organization=EVERYONE, channel_id=channel.id)
    with organization_scope([EVERYONE]):
        assert not Delivery.objects.filter(kind="webhook").exists()


def snapshot() -> dict[str, Any]:
    parts = msgspec.json.decode(rows("SELECT config_parts(0, 0)")[0][0])
    found: dict[str, Any] = parts["objectives"]
    return found


def test_receivers_that_hang_keep_nobody_else_waiting(
    database: str, hooks: Receiver, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(outbound, "EXCHANGE_S_MAX", 4.0)
    monkeypatch.setattr(messages, "OUTBOUND_S_MAX", 4.0)
    monkeypatch.setattr(messages, "RUN_S_MAX", 6.0)
    cast = make_cast()
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        hanging = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        for organization, number in ((cast.acme.id, 10), (cast.other.id, 1)):
            made = services.objective_create(
                actor=OPERATOR, organization=organization, draft=draft(rules=("page_quick",))
            )
            for each in range(number):
                address = f"{hanging}{each}" if number > 1 else hooks.url
                services.channel_add(
                    actor=OPERATOR, organization=organization, kind="webhook", address=address
                )
            outage(made)
        assert evaluate.objectives_evaluate(NOW) == 2
        # Those that hang are the older ones.
        rows(
            "UPDATE slo_deliveries SET due_at = due_at - interval '1 hour' WHERE organization = %s",
            cast.acme.id,
        )
        began_s = time.monotonic()
        messages.messages_send()
        assert time.monotonic() - began_s < 2 * messages.RUN_S_MAX
    assert len(hooks.received) == 1
    with organization_scope([cast.acme.id]):
        begun = Delivery.objects.filter(kind="webhook", attempts__gt=0).count()
        # Their share at once, and no more of them than the run had time for.
        assert 0 < begun <= 2 * messages.SHARE
