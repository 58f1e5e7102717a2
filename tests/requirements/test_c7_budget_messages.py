"""C7: requests spend a budget; what it reached is told to each kind of channel once, and logged."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from django.conf import settings

from controlplane.billing.budgets.services import BudgetDraft, budget_plan
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.kernel.ids import public_id
from controlplane.slos.channels.delivery import signing_secret
from controlplane.slos.handling import channel_test
from controlplane.slos.models import Channel
from controlplane.slos.selectors import delivery_list
from controlplane.slos.services import channel_add
from controlplane.tenants.models import Project
from tests.requirements.test_c7_alerts import ask_some
from tests.support.objectives import Received, Receiver, receiver
from tests.support.product import Plan, Product, demo_key, running_product
from tests.support.servers import Servers
from tests.support.waiting import wait_for

HURRIED = "tests.support.hurried"
KEY = "0123456789abcdef"
KINDS = ("webhook", "slack", "teams", "pagerduty", "opsgenie")
# Of so small a budget one request is more than a hundredth.
SMALL_NANO = 100_000


@pytest.fixture
def hooks() -> Iterator[dict[str, Receiver]]:
    with receiver() as a, receiver() as b, receiver() as c, receiver() as d, receiver() as e:
        yield dict(zip(KINDS, (a, b, c, d, e), strict=True))


@pytest.fixture
def product(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Product]:
    monkeypatch.setattr(settings, "WEBHOOKS_PRIVATE", True)
    monkeypatch.setenv("SLUICE_WEBHOOKS_PRIVATE", "1")
    with running_product(servers, Plan(sweeps=True, clock=HURRIED)) as product:
        yield product


def body(received: Received) -> Any:
    return json.loads(received.body)


def is_of_standard_webhooks(received: Received, channel: Channel) -> bool:
    """As their libraries check it, whose key is the secret read as base64."""
    head = {name.lower(): value for name, value in received.headers.items()}
    signed = f"{head['webhook-id']}.{head['webhook-timestamp']}.".encode() + received.body
    key = base64.b64decode(signing_secret(channel.id))
    made = base64.b64encode(hmac.digest(key, signed, sha256)).decode()
    return (
        f"v1,{made}" in head["webhook-signature"].split()
        and head["webhook-id"] == body(received)["id"]
    )


def test_a_budget_is_told_to_every_kind_of_channel(
    product: Product, hooks: dict[str, Receiver]
) -> None:
    demo = demo_key()
    organization = demo.organization_id
    channels = {}
    for kind, server in hooks.items():
        address = server.url.partition("?")[0]
        address += f"#{KEY}" if kind in ("pagerduty", "opsgenie") else ""
        channels[kind] = channel_add(
            actor=OPERATOR, organization=organization, kind=kind, address=address
        )
        channel_test(actor=OPERATOR, organization=organization, channel_id=channels[kind].id)
    wait_for(lambda: all(server.received for server in hooks.values()), "tests of all channels")

    with organization_scope([organization]):
        project = Project.objects.get(id=demo.project_id)
    spent = BudgetDraft(allowance_nano=SMALL_NANO, period="day", alerts=(1,))
    budget_plan(actor=OPERATOR, subject=project, draft=spent)
    assert ask_some(product, product.key, 1)[0].whole
    wait_for(lambda: all(len(server.received) > 1 for server in hooks.values()), "the budget's")

    told = {kind: server.received[1] for kind, server in hooks.items()}
    sent = body(told["webhook"])
    assert (sent["event"], sent["percent"], sent["available_nano"]) == (
        "budget.reached", 1, SMALL_NANO,
    )  # fmt: skip
    assert sent["budget"] == public_id("proj", project.id)
    assert sent["spent_nano"] >= SMALL_NANO // 100
    assert is_of_standard_webhooks(told["webhook"], channels["webhook"])
    assert sent["name"] == f"project {project.name}"
    assert f"1 % of the budget of {sent['name']} is spent" in body(told["slack"])["text"]
    card = body(told["teams"])["attachments"][0]["content"]
    assert "1 %" in card["body"][0]["text"]
    event = body(told["pagerduty"])
    assert (event["routing_key"], event["event_action"]) == (KEY, "trigger")
    assert event["payload"]["severity"] == "warning"
    assert event["dedup_key"] == body(told["opsgenie"])["alias"]
    assert event["dedup_key"].startswith(sent["budget"])
    assert body(told["opsgenie"])["priority"] == "P3"

    def logged() -> list[tuple[str, str]]:
        listed = delivery_list(actor=OPERATOR, organization=organization)
        return sorted((one.event, one.kind) for one in listed if one.sent_at)

    expected = sorted((event, kind) for event in ("budget", "test") for kind in KINDS)
    wait_for(lambda: logged() == expected, "the log of messages")
