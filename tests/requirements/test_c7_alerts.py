"""C7: requests fail or come late, gateways count them, a job looks, an alert is told and keeps low
priority out, and all of it recovers: by the processes of the product.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import msgspec
import pytest
from django.conf import settings

from controlplane.composed.demo import POOL
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.kernel.objectives.counting import SHED_CODE, IndicatorPart
from controlplane.kernel.rules import PRIORITY_LOW
from controlplane.slos.models import EVERYONE
from controlplane.slos.services import channel_add, objective_create
from controlplane.slos.shedding import LET_IN
from controlplane.tenants.keys import KeyTerms, apikey_create
from controlplane.tenants.models import Project
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.money import rows
from tests.support.objectives import Receiver, draft, receiver
from tests.support.product import Plan, Product, demo_key, running_product
from tests.support.servers import Servers
from tests.support.waiting import wait_for

SERVED, FAILED = 20, 20
TOKENS = 2
HURRIED, SHORT_SHEDS = "tests.support.hurried", "tests.support.short_sheds"
LATE_US, CROWD = 300_000, 24


@pytest.fixture
def hooks() -> Iterator[Receiver]:
    with receiver() as server:
        yield server


@pytest.fixture
def to_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages may go to the receiver, which is on this machine."""
    monkeypatch.setattr(settings, "WEBHOOKS_PRIVATE", True)
    monkeypatch.setenv("SLUICE_WEBHOOKS_PRIVATE", "1")


@pytest.fixture
def product(servers: Servers, to_hooks: None) -> Iterator[Product]:
    with running_product(servers, Plan(sweeps=True, clock=HURRIED)) as product:
        yield product


@pytest.fixture
def narrow(servers: Servers, to_hooks: None) -> Iterator[Product]:
    """One node that takes one request at a time, fifty tokens a second; sheds end in seconds."""
    plan = Plan(tokens_per_s=50.0, credits=1, sweeps=True, clock=SHORT_SHEDS)
    with running_product(servers, plan) as product:
        yield product


def ask_some(product: Product, key: str, count: int, at_once: int = 1) -> list[Answer]:
    async def asking() -> list[Answer]:
        async with open_client(product.urls[0]) as client:
            body = make_body(tokens=TOKENS, stream=at_once > 1)

            async def one_by_one() -> list[Answer]:
                return [await ask(client, key, body) for _ in range(count)]

            found = await asyncio.gather(*(one_by_one() for _ in range(at_once)))
            return [answer for answers in found for answer in answers]

    return asyncio.run(asking())


def low_key() -> str:
    """A key of the demo's project, whose requests have low priority."""
    demo = demo_key()
    with organization_scope([demo.organization_id]):
        project = Project.objects.get(id=demo.project_id)
    terms = KeyTerms(priority=PRIORITY_LOW)
    return apikey_create(actor=OPERATOR, project=project, label="batch", terms=terms).secret


def test_failing_requests_raise_an_alert_that_is_told_and_keeps_low_priority_out(
    product: Product, hooks: Receiver
) -> None:
    objective_create(
        actor=OPERATOR,
        organization=EVERYONE,
        draft=draft(shed_priority=PRIORITY_LOW, rules=("page_quick",)),
    )
    channel_add(actor=OPERATOR, organization=EVERYONE, kind="webhook", address=hooks.url)
    low = low_key()
    # Before anything fails, low priority is served, and nothing is told.
    wait_for(lambda: ask_some(product, low, 1)[0].whole, "the new key")
    assert all(answer.whole for answer in ask_some(product, product.key, SERVED))
    wait_for(lambda: rows("SELECT 1 FROM slo_counts WHERE good > 0"), "counts of what went well")
    assert not hooks.received

    product.nodes[0].kill()
    wait_for(lambda: product.readiness().get("nodes") == 0, "the node's loss")
    assert {answer.status for answer in ask_some(product, product.key, FAILED)} == {503}
    wait_for(lambda: hooks.received, "a message")
    told = json.loads(hooks.received[0].body)
    assert (told["event"], told["severity"], told["rule"]) == ("alert.firing", "page", "page_quick")
    ((good, total),) = rows(
        "SELECT sum(good)::int, sum(total)::int FROM slo_counts WHERE step_s = 60"
    )
    assert total - good >= FAILED and good > SERVED

    product.nodes[0].start()
    product.wait_ready()
    (refused,) = ask_some(product, low, 1)
    assert (refused.status, refused.error["code"]) == (503, SHED_CODE)
    assert ask_some(product, product.key, 1)[0].whole


def events(hooks: Receiver) -> list[str]:
    return [json.loads(one.body)["event"] for one in hooks.received]


def test_a_crowd_burns_a_pools_objective_is_shed_and_all_recovers(
    narrow: Product, hooks: Receiver
) -> None:
    promise = draft(
        name="prompt answers",
        indicator="all_of",
        parts=(IndicatorPart("availability"), IndicatorPart("total", LATE_US)),
        pool=POOL,
        region="local",
        target_ppm=950_000,
        shed_priority=PRIORITY_LOW,
        rules=("page_quick",),
    )
    elsewhere = msgspec.structs.replace(promise, name="elsewhere", pool="another")
    for one in (promise, elsewhere):
        objective_create(actor=OPERATOR, organization=EVERYONE, draft=one)
    channel_add(actor=OPERATOR, organization=EVERYONE, kind="webhook", address=hooks.url)
    low = low_key()
    wait_for(lambda: ask_some(narrow, low, 1)[0].whole, "the new key")
    wait_for(lambda: rows("SELECT 1 FROM slo_counts WHERE good > 0"), "counts of what went well")

    # Each alone is in time; of a crowd nearly all wait longer than was promised.
    def crowded() -> bool:
        ask_some(narrow, low, 1, CROWD)
        return bool(hooks.received)

    wait_for(crowded, "a message")
    assert json.loads(hooks.received[0].body)["objective"]["name"] == promise.name
    ((good, total),) = rows("SELECT sum(good)::int, sum(total)::int FROM slo_counts")
    assert total - good > 0.72 * total and total >= CROWD

    def refused() -> bool:
        (answer,) = ask_some(narrow, low, 1)
        return (answer.status, answer.error.get("code")) == (503, SHED_CODE)

    wait_for(refused, "the shed")

    # Who is not shed is served in time again, so that the alert ends, and with it the shed.
    def recovered() -> bool:
        assert all(answer.whole for answer in ask_some(narrow, narrow.key, SERVED))
        return "alert.recovered" in events(hooks)

    wait_for(recovered, "the recovery")
    wait_for(lambda: ask_some(narrow, low, 1)[0].whole, "low priority let in again")
    assert events(hooks) == ["alert.firing", "alert.recovered"]
    ((state, acts),) = rows("SELECT state, acts FROM slo_alerts")
    assert state == "recovered" and acts[-1] == LET_IN
