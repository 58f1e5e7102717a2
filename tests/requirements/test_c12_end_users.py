"""C12: usage, limits and budgets also by end user, label and model, exact over two gateways."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from controlplane.billing.budgets.services import (
    BudgetDraft,
    ProjectPart,
    budget_end,
    budget_id,
    budget_plan,
)
from controlplane.billing.exports.kinds import pages_of, scope_of
from controlplane.billing.exports.models import ExportKind
from controlplane.billing.exports.writer import lines_of
from controlplane.billing.ledger.services import seal_ledger
from controlplane.composed.demo import MODEL
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.quotas.services import LimitedPart, rate_limit_set
from controlplane.tenants.models import Project
from controlplane.tenants.services import project_update
from tests.product.traffic import Answer, ask, make_body, open_clients
from tests.support.exports import days_spec
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.people import demo_admin
from tests.support.product import (
    Plan,
    Product,
    demo_key,
    running_product,
    verify_ledger,
)
from tests.support.servers import Servers
from tests.support.waiting import until

GATEWAYS = 2
TOKENS = 5
BURST, AFFORDABLE = 50, 7
A_DAY = 4


@pytest.fixture(scope="module")
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan(gateways=GATEWAYS)) as product:
        yield product


@pytest.fixture
async def clients(product: Product) -> AsyncIterator[list[httpx2.AsyncClient]]:
    async with open_clients(product.urls) as made:
        yield made


def demo_project() -> Project:
    demo = demo_key()
    with organization_scope([demo.organization_id]):
        return Project.objects.get(id=demo.project_id)


async def applied(product: Product, change: Callable[[], Any]) -> None:
    """Make a change that both gateways then know."""
    before = product.readiness()["configuration_version"]
    await orm(change)()
    numbers = range(GATEWAYS)
    await until(
        lambda: min(product.readiness(n)["configuration_version"] for n in numbers) > before
    )


async def burst(
    product: Product, clients: list[httpx2.AsyncClient], user: str, count: int
) -> list[Answer]:
    """So many requests of one end user at once, over both gateways."""
    body = {**make_body(tokens=TOKENS, stream=False), "user": user}
    asked = [ask(clients[n % GATEWAYS], product.key, body) for n in range(count)]
    return await asyncio.gather(*asked)


async def held_nano(product: Product, client: httpx2.AsyncClient) -> int:
    """What one such request holds."""
    answer = await ask(client, product.key, make_body(tokens=TOKENS, stream=False))
    found = rows(
        "SELECT amount FROM transfers WHERE slot = 0 AND request = %s",
        uuid.UUID(hex=answer.request),
    )
    return int(found[0][0])


async def test_c12_each_end_user_spends_exactly_the_own_budget(
    product: Product, clients: list[httpx2.AsyncClient]
) -> None:
    held = await held_nano(product, clients[0])
    part = ProjectPart(await orm(demo_project)())
    draft = BudgetDraft(allowance_nano=AFFORDABLE * held, period="day")
    await applied(product, lambda: budget_plan(actor=OPERATOR, subject=part, draft=draft))
    known = [one for (one,) in rows("SELECT id FROM budgets WHERE scope = 'user'")]
    answers = await burst(product, clients, "ann", BURST)
    # What was not used of holds may let a few more in; then one more is refused, and no other user.
    assert AFFORDABLE <= sum(answer.whole for answer in answers) < BURST
    for answer in answers:
        assert answer.whole or (answer.status, answer.error["code"]) == (429, "insufficient_quota")
        assert answer.whole or "end user's budget" in answer.error["message"]
    assert all(answer.whole for answer in await burst(product, clients, "bob", 1))
    found = rows(
        "SELECT lim, posted, held, over FROM budgets WHERE scope = 'user' AND id <> ALL (%s)", known
    )
    assert len(found) == 2
    assert all(posted <= lim and (held, over) == (0, 0) for lim, posted, held, over in found)
    assert sum(posted for _, posted, _, _ in found) == sum(
        nano
        for (nano,) in rows(
            "SELECT t.amount FROM transfers t JOIN transfers h ON h.request = t.request"
            " AND h.slot = 0 WHERE t.kind = 'settle'"
            " AND h.others #>> '{\"\",user}' IN ('ann', 'bob')"
        )
    )
    await verify_ledger()
    await applied(product, lambda: budget_end(actor=OPERATOR, subject=part))
    assert (await burst(product, clients, "ann", 1))[0].whole


async def test_c12_a_period_that_begins_gives_each_end_user_the_whole_amount(
    product: Product, clients: list[httpx2.AsyncClient]
) -> None:
    held = await held_nano(product, clients[0])
    part = ProjectPart(await orm(demo_project)())
    draft = BudgetDraft(allowance_nano=held, period="day")
    await applied(product, lambda: budget_plan(actor=OPERATOR, subject=part, draft=draft))
    used = await burst(product, clients, "cid", BURST)
    assert {answer.whole for answer in used} == {True, False}
    rows(
        "UPDATE budget_terms SET began_at = began_at + interval '1 microsecond' WHERE budget = %s",
        budget_id(part),
    )
    assert (await burst(product, clients, "cid", 1))[0].whole
    await verify_ledger()
    await applied(product, lambda: budget_end(actor=OPERATOR, subject=part))


async def test_c12_a_models_budget_refuses_by_its_name(
    product: Product, clients: list[httpx2.AsyncClient]
) -> None:
    part = ProjectPart(await orm(demo_project)(), MODEL.name)
    draft = BudgetDraft(allowance_nano=1, period="month")
    await applied(product, lambda: budget_plan(actor=OPERATOR, subject=part, draft=draft))
    for answer in await burst(product, clients, "", GATEWAYS):
        assert (answer.status, answer.error["code"]) == (429, "insufficient_quota")
        assert "model's budget" in answer.error["message"]
    await applied(product, lambda: budget_end(actor=OPERATOR, subject=part))
    assert all(answer.whole for answer in await burst(product, clients, "", GATEWAYS))


async def test_c12_each_end_user_and_each_model_has_the_own_limit(
    product: Product, clients: list[httpx2.AsyncClient]
) -> None:
    project = await orm(demo_project)()
    each = LimitedPart(project, per_user=True)
    await applied(
        product, lambda: rate_limit_set(actor=OPERATOR, subject=each, requests_per_day=A_DAY)
    )
    for user in ("dan", "eve", ""):
        answers = await burst(product, clients, user, BURST)
        assert sum(answer.whole for answer in answers) == A_DAY
        refused = next(answer for answer in answers if not answer.whole)
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert f"{A_DAY} requests per day for this end user" in refused.error["message"]
    await applied(product, lambda: rate_limit_set(actor=OPERATOR, subject=each))
    model = LimitedPart(project, model=MODEL.name)
    await applied(
        product, lambda: rate_limit_set(actor=OPERATOR, subject=model, requests_per_day=A_DAY)
    )
    answers = [
        answer for user in ("fay", "gil") for answer in await burst(product, clients, user, 4)
    ]
    assert sum(answer.whole for answer in answers) == A_DAY
    assert f"for this model '{MODEL.name}'" in answers[-1].error["message"]
    await applied(product, lambda: rate_limit_set(actor=OPERATOR, subject=model))


async def test_c12_sums_by_end_user_and_label_are_the_ledgers(
    product: Product, clients: list[httpx2.AsyncClient]
) -> None:
    def keep() -> None:
        project_update(
            actor=OPERATOR,
            project=demo_project(),
            safety_mode="off",
            allow_content_logging=False,
            labels=["team", "feature"],
        )

    await applied(product, keep)
    body = make_body(tokens=TOKENS, stream=False)
    asked = [
        {"user": "hal", "metadata": {"team": "a", "secret": "x"}},
        {"safety_identifier": "ida", "user": "hal", "metadata": {"feature": "b", "team": "a"}},
        {},
    ]
    answers = [await ask(clients[n % 2], product.key, body | each) for n, each in enumerate(asked)]
    assert all(answer.whole for answer in answers)
    assert not any("x-sluice-ignored" in answer.headers for answer in answers)
    seal_ledger_now = orm(lambda: seal_ledger(datetime.now(UTC)))
    await seal_ledger_now()
    ((charged,),) = rows(
        "SELECT sum(amount)::bigint FROM transfers WHERE kind IN ('settle', 'overage', 'late')"
    )
    organization = demo_key().organization_id
    usage = await orm(_exported)(organization, ExportKind.USAGE)
    assert sum(int(row["amount_nano_usd"]) for row in usage) == charged
    users = Counter[str]()
    for row in usage:
        users[row["end_user"]] += int(row["requests"])
    assert users["hal"] == users["ida"] == 1 and users[""] >= 1
    assert {row["labels"] for row in usage if row["end_user"] == "hal"} == {'{"team": "a"}'}
    focus = await orm(_exported)(organization, ExportKind.FOCUS)
    tags = {json.dumps(json.loads(row["Tags"])) for row in focus if row["x_EndUser"] == "ida"}
    assert tags == {'{"team": "a", "feature": "b"}'}
    costs = await orm(_costs)()
    assert sum(costs.values()) == charged and costs["hal"] > 0
    await verify_ledger()
    # Rows of requests are written behind their answers.
    written = "SELECT 1 FROM request_records WHERE request = %s"
    await until(lambda: all(rows(written, uuid.UUID(hex=each.request)) for each in answers))
    page = await orm(lambda: demo_admin().get("/requests?user=ida").content.decode())()
    assert answers[1].request in page and answers[0].request not in page


def _exported(organization: uuid.UUID, kind: str) -> list[dict[str, str]]:
    today = datetime.now(UTC).date()
    spec = days_spec(organization, kind, today - timedelta(days=1), today + timedelta(days=2))
    text = "".join(lines_of(pages_of(spec, scope_of(spec, spec.end))))
    return list(csv.DictReader(io.StringIO(text)))


def _costs() -> dict[str, int]:
    """Nano-USD by end user, as the API tells it."""
    start = int((datetime.now(UTC) - timedelta(days=1)).timestamp())
    query: dict[str, str | int] = {"start_time": start, "group_by": "user_id"}
    answer = demo_admin().get("/v1/organization/costs", query)
    assert answer.status_code == 200, answer.content
    found = [one for bucket in answer.json()["data"] for one in bucket["results"]]
    return {one["user_id"]: one["amount"]["nano_usd"] for one in found}
