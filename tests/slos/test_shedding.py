"""Priorities kept out on a real database: for how long gateways hear of them, and what is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.slos import evaluate, selectors, services, shapes
from controlplane.slos.models import EVERYONE, Alert, Objective, Shed
from controlplane.slos.shedding import LEASE, LEAST, WELL
from controlplane.slos.standings import floor
from frontend.shared.formats import moment
from frontend.slos.objectives import objective_row
from tests.support.money import rows
from tests.support.objectives import count, draft
from tests.support.people import make_cast

A_MINUTE = timedelta(minutes=1)


@pytest.fixture
def now() -> datetime:
    """PostgreSQL reads leases by its own clock."""
    return floor(datetime.now(UTC), 60)


@pytest.fixture
def objective(database: str) -> Objective:
    return services.objective_create(
        actor=OPERATOR, organization=EVERYONE, draft=draft(shed_priority=0, rules=("page_quick",))
    )


def outage(objective: Objective, until: datetime) -> None:
    """Good traffic for an hour, then nothing but failures for ten minutes."""
    for back in range(60):
        count(objective, until - back * A_MINUTE, good=0 if back < 10 else 100, total=100)


def kept_out() -> dict[str, float]:
    """What gateways read: priorities, and until when in Unix time."""
    parts = msgspec.json.decode(rows("SELECT config_parts(0, 0)")[0][0])
    found: dict[str, float] = parts["objectives"]["shed_until"]
    return found


def version() -> int:
    return int(rows("SELECT version FROM config_version")[0][0])


def sheds() -> list[Shed]:
    with organization_scope([EVERYONE]):
        return list(Shed.objects.order_by("since", "id"))


def test_it_outlasts_its_alert_until_the_rest_was_well(objective: Objective, now: datetime) -> None:
    outage(objective, now)
    evaluate.objectives_evaluate(now)
    assert kept_out() == {"0": (now + LEASE).timestamp()}
    began = now
    # Nothing comes any more: the alert recovers, and the priority stays out.
    for minute in range(1, 40):
        evaluate.objectives_evaluate(now + minute * A_MINUTE)
        if not kept_out():
            break
    end = now + minute * A_MINUTE
    with organization_scope([EVERYONE]):
        alert = Alert.objects.get()
    assert alert.recovered_at is not None
    assert end - alert.recovered_at == WELL and end - began >= LEAST
    assert alert.acts == [
        "priority low is shed",
        "priority low stays shed until all other objectives have been healthy for 10 min",
        "no priority is shed any more",
    ]
    told = rows(
        "SELECT action FROM audit_entries WHERE actor_label = 'objective watch' ORDER BY id"
    )
    assert [one[0] for one in told] == [
        "slo_alert.fire", "slo_hold.begin", "slo_alert.recover", "slo_hold.release",
    ]  # fmt: skip


def test_what_nobody_renews_is_ignored_after_its_lease(objective: Objective, now: datetime) -> None:
    outage(objective, now)
    evaluate.objectives_evaluate(now)
    # Nobody looked since: the job died.
    before = version()
    rows("UPDATE slo_holds SET until = now() - interval '1 second'")
    assert kept_out() == {}
    assert version() == before + 1
    # It comes back and finds the objective still in danger.
    later = now + 7 * A_MINUTE
    outage(objective, later)
    for each in (later, later + A_MINUTE / 2):
        evaluate.objectives_evaluate(each)
    first, second = sheds()
    assert first.released_at == first.until
    assert (second.least, second.released_at) == (2 * LEAST, None)
    assert kept_out() == {"0": (later + A_MINUTE / 2 + LEASE).timestamp()}


def test_gateways_read_again_only_what_changes_for_them(
    objective: Objective, now: datetime
) -> None:
    cast = make_cast()
    theirs = services.objective_create(
        actor=cast.alice, organization=cast.acme.id, draft=draft(rules=("page_quick",))
    )
    before = version()
    outage(theirs, now)
    assert evaluate.objectives_evaluate(now) == 1
    assert evaluate.objectives_evaluate(now + 10 * A_MINUTE) == 1
    assert version() == before
    outage(objective, now)
    evaluate.objectives_evaluate(now)
    assert version() == before + 1
    # It began to be well, which is noted, and the lease goes on.
    evaluate.objectives_evaluate(now + 2 * A_MINUTE)
    assert version() == before + 1
    evaluate.objectives_evaluate(now + 3 * A_MINUTE)
    assert version() == before + 2


def test_what_is_paused_or_ended_keeps_nothing_out(objective: Objective, now: datetime) -> None:
    outage(objective, now)
    evaluate.objectives_evaluate(now)
    services.objective_update(
        actor=OPERATOR, objective=objective, draft=draft(shed_priority=0, enabled=False)
    )
    # At once, and not only once the job has looked: it may be what stands still.
    assert kept_out() == {}
    evaluate.objectives_evaluate(now)
    assert [one.released_at for one in sheds()] == [now]
    services.objective_update(actor=OPERATOR, objective=objective, draft=draft(shed_priority=1))
    evaluate.objectives_evaluate(now)
    assert list(kept_out()) == ["1"]
    services.objective_end(actor=OPERATOR, objective=objective)
    assert kept_out() == {}
    evaluate.objectives_evaluate(now)
    assert [one.released_at for one in sheds()] == [now, now]


def test_the_objective_tells_what_it_keeps_out(objective: Objective, now: datetime) -> None:
    outage(objective, now)
    evaluate.objectives_evaluate(now)
    (standing,) = selectors.objective_standings(actor=OPERATOR, organization=EVERYONE)
    told = shapes.objective_json(standing)["kept_out"]
    assert told == {"since": now, "least_until": now + LEAST, "lease_until": now + LEASE}
    words = objective_row(standing).kept_out
    assert words == f"low priority since {moment(now)}, at least until {moment(now + LEAST)}"
    rows("UPDATE slo_holds SET until = now() - interval '1 second'")
    (standing,) = selectors.objective_standings(actor=OPERATOR, organization=EVERYONE)
    assert shapes.objective_json(standing)["kept_out"] is None
    assert objective_row(standing).kept_out == ""
