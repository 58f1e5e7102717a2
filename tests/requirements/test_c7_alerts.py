"""C7: requests fail, gateways count them, a job looks, an alert is told and keeps low priority out:
all of it by the processes of the product.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from django.conf import settings

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.kernel.objectives.counting import SHED_CODE
from controlplane.kernel.rules import PRIORITY_LOW
from controlplane.slos.models import EVERYONE
from controlplane.slos.services import channel_add, objective_create
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
HURRIED = "tests.support.hurried"


@pytest.fixture
def hooks() -> Iterator[Receiver]:
    with receiver() as server:
        yield server


@pytest.fixture
def product(
    servers: Servers, hooks: Receiver, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Product]:
    monkeypatch.setattr(settings, "WEBHOOKS_PRIVATE", True)
    monkeypatch.setenv("SLUICE_WEBHOOKS_PRIVATE", "1")
    with running_product(servers, Plan(sweeps=True, clock=HURRIED)) as product:
        yield product


def ask_some(product: Product, key: str, count: int) -> list[Answer]:
    async def asking() -> list[Answer]:
        async with open_client(product.urls[0]) as client:
            body = make_body(tokens=TOKENS, stream=False)
            return [await ask(client, key, body) for _ in range(count)]

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
