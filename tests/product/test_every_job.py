"""Each job that a schedule names, done by a real worker on a database that has work for it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from django.conf import settings

from controlplane.billing.months import closes
from controlplane.billing.months.periods import Period
from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.celery import app
from controlplane.contents.services import Keeping, contents_configure
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.jobs.lives import connect_redis, lives_read
from controlplane.embedded import stack
from controlplane.fleet.services import node_credential_create
from controlplane.kernel.ids import new_request_id
from controlplane.routing.services import RuleVersions
from controlplane.slos.learning import REQUESTS_MIN
from controlplane.slos.models import EVERYONE
from controlplane.slos.services import channel_add, objective_create
from tests.support.batches import make_batch
from tests.support.exports import asked_for, month_spec
from tests.support.money import ALICE_KEY, ORG_A, PROJECT_A, dsn, make_hold, rows
from tests.support.month import PERIOD, seed_month
from tests.support.objectives import Receiver, count, draft, receiver
from tests.support.people import Cast, make_cast
from tests.support.product import Child, fresh_data
from tests.support.records import make_record
from tests.support.rules import generates, make_models, publish
from tests.support.said import keep_row
from tests.support.servers import Servers
from tests.support.traffic import routed, store
from tests.support.waiting import until, wait_for

NOW = datetime.now(UTC)
# The first waits for the worker to start. Below the bound of a test: a failure names its job.
DONE_S_MAX = 60.0
OUTAGE_MIN = 10
SHARE_PERMILLE = 250
LATER = (date.today() + timedelta(days=6)).strftime("%Y%m%d")


class Work(NamedTuple):
    """A job's name, what it finds, and a query that is true once it is done, or what looks."""

    task: str
    find: Callable[[Scene], object]
    done: str | Callable[[Scene], bool]


class Scene(NamedTuple):
    """What works are made of."""

    cast: Cast
    worker: Child
    hooks: Receiver


@pytest.fixture
def scene(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(settings, "WEBHOOKS_PRIVATE", True)
    child = stack.worker()
    with (
        TemporaryDirectory(prefix="sluice-worker-") as folder,
        fresh_data(servers),
        receiver() as hooks,
    ):
        log = Path(folder) / "worker.log"
        worker = Child(child.name, child.argv, {**child.env, "SLUICE_WEBHOOKS_PRIVATE": "1"}, log)
        cast = make_cast()
        seed_month(cast)
        worker.start()
        try:
            yield Scene(cast, worker, hooks)
        finally:
            worker.stop()
            print(worker.log[-6_000:])


def a_hold_that_is_over(_: Scene) -> None:
    async def hold() -> None:
        ledger = PostgresLedger(dsn())
        ledger.start()
        await until(lambda: not ledger.away)
        await ledger.hold(make_hold(5, expires_s=0))
        await ledger.close()

    asyncio.run(hold())


def a_budget_that_turns(scene: Scene) -> None:
    rows(
        "INSERT INTO budget_terms (budget, organization, allowance, carried, given, base, began_at,"
        " turns_at, rollover, period, zone, alerts)"
        " VALUES (%s, %s, 1000, 0, 0, 0, now() - interval '2 days', now() - interval '1 day',"
        " false, 'day', 'UTC', '{50}')",
        *[scene.cast.acme.id] * 2,
    )


def an_old_moment(_: Scene) -> None:
    made = node_credential_create(actor=OPERATOR, name="n1", pool="default")
    rows(
        "INSERT INTO node_moments (node_id, at, running, waiting, step_us)"
        " VALUES (%s, now() - interval '4 days', 1, 0, 5)",
        made.credential.node_id,
    )


def an_hour_lately(scene: Scene) -> None:
    """The one before the month that is closed below."""
    rows(
        "UPDATE ledger_hours SET hour = date_trunc('hour', now()) - interval '3 hours' WHERE ctid ="
        " (SELECT ctid FROM ledger_hours WHERE organization = %s ORDER BY hour LIMIT 1)",
        scene.cast.acme.id,
    )


def a_file_whose_time_is_over(scene: Scene) -> None:
    make_batch(scene.cast.acme.id, scene.cast.project.id)
    rows("UPDATE batch_files SET expires_at = 1")


def what_is_kept_no_more(scene: Scene) -> None:
    keeping = Keeping(1, ["owner"])
    project = contents_configure(
        actor=scene.cast.alice, project=scene.cast.project, keeping=keeping
    )
    keep_row(project, UUID(bytes=new_request_id()))
    rows("UPDATE projects SET keeps_days = 0, content_key = NULL")


def a_month_to_close(scene: Scene) -> None:
    least, closes.CLOSE_AT_ONCE_REQUESTS = closes.CLOSE_AT_ONCE_REQUESTS, 0
    try:
        closes.period_close_ask(
            actor=scene.cast.alice,
            organization=scene.cast.acme.id,
            period=Period(PERIOD),
            enqueue=lambda organization, job: None,
        )
    finally:
        closes.CLOSE_AT_ONCE_REQUESTS = least


def a_canary_that_fails(scene: Scene) -> None:
    make_models("small", "large")
    publish(generates("chat", "small", aliases=["chat"]))
    trial = RuleVersions(OPERATOR).draft_create([generates("chat", "large", aliases=["chat"])])
    RuleVersions(OPERATOR).canary_start(trial, share_permille=SHARE_PERMILLE, stops_itself=True)
    rows("UPDATE rule_sets SET canary_at = now() - interval '1 minute' WHERE state = 'canary'")
    good = [routed(scene.cast, "chat", "chat@1", draw=0.9, model="small") for _ in range(300)]
    bad = [
        routed(scene.cast, "chat", "chat@2", draw=0.1, model="large", status=503, output_tokens=0)
        for _ in range(100)
    ]
    store([*good, *bad])


def an_outage(scene: Scene) -> None:
    made = objective_create(actor=OPERATOR, organization=EVERYONE, draft=draft())
    channel_add(actor=OPERATOR, organization=EVERYONE, kind="webhook", address=scene.hooks.url)
    for back in range(60):
        at = NOW - timedelta(minutes=back)
        count(made, at, good=0 if back < OUTAGE_MIN else 100, total=100)


def is_dialled(scene: Scene) -> bool:
    place = urlsplit(scene.hooks.url).netloc
    with connect_redis() as connection:
        return ("webhook", place) in {
            (each.life.kind, each.life.name) for each in lives_read(connection)
        }


def old_hygiene(_: Scene) -> None:
    rows(
        "INSERT INTO hygiene_hours VALUES (now() - interval '91 days', %s, %s, %s, %s, 'm',"
        " 'looked', 1, 1, 1)",
        *(uuid.uuid4(), ORG_A, PROJECT_A, ALICE_KEY),
    )


def old_exemplars(_: Scene) -> None:
    rows("UPDATE exemplars SET at = at - interval '30 days'")


def sql(statement: str) -> Callable[[Scene], object]:
    return lambda _: rows(statement)


def not_there(table: str) -> str:
    return f"SELECT NOT EXISTS (SELECT 1 FROM {table})"


def there(table: str) -> str:
    return f"SELECT EXISTS (SELECT 1 FROM {table})"


NOTHING = sql("SELECT 1")
KEPT = (
    "INSERT INTO kept_answers (id, payload, status, rights, created_at)"
    " VALUES (gen_random_uuid(), sha256(''), 200, '[]', now() - interval '2 days')"
)
SESSION = "INSERT INTO django_session VALUES ('old', '', now() - interval '1 day')"
CLAIM = (
    "INSERT INTO inference_claims (id, organization, payload, request, claimed_at)"
    " VALUES (sha256('a'), gen_random_uuid(), sha256('b'), gen_random_uuid(),"
    " now() - interval '2 days')"
)
HOURS = (
    "INSERT INTO node_hours VALUES (date_trunc('day', now()) - interval '30 hours',"
    " gen_random_uuid(), 'default', 2500000, 2, 3600000, 0)"
)
# In this order: later ones find what earlier ones have made.
WORKS = (
    Work("core.audit_chain", NOTHING, there("audit_links")),
    Work("core.answers_forget", sql(KEPT), not_there("kept_answers")),
    Work("core.sessions_forget", sql(SESSION), not_there("django_session")),
    Work("billing.sweep_holds", a_hold_that_is_over, not_there("open_holds")),
    Work("billing.seal_ledger", NOTHING, "SELECT sum(rows) > 100 FROM ledger_seals"),
    Work(
        "billing.reconcile_lately",
        an_hour_lately,
        there("reconciliations"),
    ),
    Work(
        "billing.make_partitions",
        sql(f"DROP TABLE transfers_{LATER}"),
        f"SELECT to_regclass('transfers_{LATER}') IS NOT NULL",
    ),
    Work("billing.forget_claims", sql(CLAIM), not_there("inference_claims")),
    Work(
        "billing.turn_budgets",
        a_budget_that_turns,
        "SELECT turns_at > now() FROM budget_terms WHERE turns_at IS NOT NULL",
    ),
    Work(
        "billing.raise_alerts",
        sql("UPDATE budget_terms SET base = base - 600"),
        there("budget_alerts"),
    ),
    Work(
        "billing.period_closes_resume",
        a_month_to_close,
        there("period_close_jobs WHERE state = 'running' OR state = 'done'"),
    ),
    Work("billing.period_close_run", NOTHING, there("period_closes")),
    Work("billing.book_costs", sql(HOURS), there("journal_entries WHERE kind = 'cogs'")),
    Work(
        "billing.exports_resume",
        lambda scene: asked_for(scene.cast, month_spec(scene.cast.acme.id, "usage")),
        there("exports WHERE state <> 'waiting'"),
    ),
    Work("billing.export_write", NOTHING, there("exports WHERE state = 'done'")),
    Work(
        "billing.exports_prune",
        sql("UPDATE exports SET finished_at = now() - interval '32 days'"),
        there("exports WHERE state = 'gone'"),
    ),
    Work(
        "batches.batches_forget",
        a_file_whose_time_is_over,
        not_there("batch_files"),
    ),
    Work("contents.forget", what_is_kept_no_more, not_there("kept_contents")),
    Work("fleet.moments_forget", an_old_moment, not_there("node_moments")),
    Work("insights.hygiene_forget", old_hygiene, not_there("hygiene_hours")),
    Work(
        "routing.ruleset_canary_watch",
        a_canary_that_fails,
        not_there("rule_sets WHERE state = 'canary'"),
    ),
    Work("slos.objectives_evaluate", an_outage, there("slo_alerts")),
    Work(
        "slos.stage_budgets_learn",
        lambda _: store([make_record() for _ in range(REQUESTS_MIN)]),
        there("slo_stage_owners WHERE learned_from > 0"),
    ),
    Work("composed.outside_dial", NOTHING, is_dialled),
    Work("composed.plans_keep", NOTHING, there("pool_plans")),
    Work("slos.messages_send", NOTHING, there("slo_deliveries WHERE sent_at IS NOT NULL")),
    Work("slos.counts_roll_up", NOTHING, there("slo_counts WHERE step_s = 86400")),
    Work(
        "slos.counts_forget",
        sql("UPDATE slo_counts SET at = at - interval '9 days' WHERE step_s = 300"),
        not_there("slo_counts WHERE at < now() - interval '8 days'"),
    ),
    Work("telemetry.roll_up", lambda _: store([make_record()]), there("histogram_rollups")),
    Work(
        "telemetry.make_partitions",
        sql(f"DROP TABLE request_records_{LATER}"),
        f"SELECT to_regclass('request_records_{LATER}') IS NOT NULL",
    ),
    Work("telemetry.drop_old_partitions", old_exemplars, not_there("exemplars")),
    Work("billing.reconcile", sql("UPDATE budgets SET held = held + 1, over = over + 1"), ""),
)  # fmt: skip
# Handed on by the job before it, through the broker.
HANDED_ON = {"billing.period_close_run", "billing.export_write"}


def test_every_job_does_its_work_on_a_worker(scene: Scene) -> None:
    ours = {name for name in app.tasks if not name.startswith("celery.")}
    assert {work.task for work in WORKS} == ours
    assert {entry["task"] for entry in app.conf.beat_schedule.values()} == ours - HANDED_ON
    for work in WORKS:
        work.find(scene)
        if work.done and work.task not in HANDED_ON:
            assert not is_done(scene, work), f"{work.task}: done before it ran"
        if work.task not in HANDED_ON:
            app.send_task(work.task)
        wait_for(partial(is_done, scene, work), work.task, DONE_S_MAX)
    wait_for(lambda: scene.hooks.received, "the alert's message")


def is_done(scene: Scene, work: Work) -> bool:
    """What differs is told in the log alone."""
    if callable(work.done):
        return work.done(scene)
    return rows(work.done) == [(True,)] if work.done else "held_counter_differs" in scene.worker.log
