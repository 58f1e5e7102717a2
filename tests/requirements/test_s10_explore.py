"""S10: any filter over any combination of dimensions, grouped, compared and shared as a link; its
counts are those of the clients, its percentiles those of all their requests, merged.
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Iterator
from math import ceil
from urllib.parse import urlencode

import httpx2
import pytest
from django.test import Client
from pytest import approx

from controlplane.composed.demo import MODEL
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.tenants.models import Project
from controlplane.tenants.services import project_update
from tests.product.traffic import Answer, ask, make_body, open_client, word_token
from tests.support.money import rows
from tests.support.people import demo_admin, make_cast, signed_in
from tests.support.product import Plan, Product, demo_key, running_product
from tests.support.servers import Servers
from tests.support.waiting import wait_for

USERS = ("ann", "bob")
TEAMS = ("search", "ads")
EACH = 6
LONG_PROMPT = 300
# What the buckets of histograms may be off by: `controlplane/kernel/histogram.py`.
ERROR = 0.0109
PERCENTS = (50, 95, 99)
TOTALS = "SELECT end_user, total_us FROM request_records"
Asked = dict[tuple[str, str], list[Answer]]


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan(tokens_per_s=2_000.0)) as product:
        yield product


def _keep_teams(product: Product) -> None:
    """The demo's project counts requests by the label `team`."""
    demo, before = demo_key(), product.readiness()["configuration_version"]
    with organization_scope([demo.organization_id]):
        project = Project.objects.get(id=demo.project_id)
    project_update(actor=OPERATOR, project=project, labels=["team"])
    wait_for(lambda: product.readiness()["configuration_version"] > before, "the label")


async def _traffic(product: Product) -> Asked:
    """So many requests for each end user and team; those for ads have long prompts."""
    async with open_client(product.urls[0]) as client:

        async def some(user: str, team: str) -> list[Answer]:
            tokens = 3 if user == USERS[0] else 30
            body = {**make_body(tokens=tokens), "user": user, "metadata": {"team": team}}
            if team == TEAMS[1]:
                body["prompt"] = [word_token()] * LONG_PROMPT
            return await asyncio.gather(*(ask(client, product.key, body) for _ in range(EACH)))

        return {(user, team): await some(user, team) for user in USERS for team in TEAMS}


def _file(client: Client, **question: str) -> list[dict[str, str]]:
    answer = client.get(f"/explore/groups.csv?{urlencode({'range': '15m', **question})}")
    assert answer.status_code == 200, answer.content
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def _nearest(values: list[int], percent: int) -> float:
    return sorted(values)[ceil(percent / 100 * len(values)) - 1] / 1_000


def test_any_filter_over_any_combination_grouped_compared_and_shared(product: Product) -> None:
    _keep_teams(product)
    asked = asyncio.run(_traffic(product))
    assert all(answer.whole for answers in asked.values() for answer in answers)
    count, client = EACH * len(asked), demo_admin()
    wait_for(lambda: len(rows(TOTALS)) == count, "records")
    _check_two_groups_from_rows(client, asked)
    _check_filters_combine(client)
    _check_ratings(client, product, asked)
    _check_percentiles(client)
    _check_rollups_and_rows_agree(client, count)
    _check_another_tenant(count)


def _check_two_groups_from_rows(client: Client, asked: Asked) -> None:
    """By end user and by the values of a label, neither of which roll-ups know."""
    found = _file(client, by="end_user", then="label", label="team")
    assert {
        (row["End user"], row["Label"]): int(row["Requests"]) for row in found
    } == dict.fromkeys(asked, EACH)
    for row in found:
        usages = [answer.usage or {} for answer in asked[row["End user"], row["Label"]]]
        assert int(row["Tokens in"]) == sum(usage["prompt_tokens"] for usage in usages)
        assert int(row["Tokens out"]) == sum(usage["completion_tokens"] for usage in usages)


def _check_filters_combine(client: Client) -> None:
    question = {"by": "prompt_bucket", "user": "bob", "label": "team=ads", "hours": "0-24"}
    (row,) = _file(client, **question, status="ok", model=MODEL.name, measure="prefill")
    assert (row["Prompt tokens"], int(row["Requests"])) == ("\u2264 1k tokens", EACH)
    assert int(row["n"]) == EACH and float(row["p50, ms"]) >= 0
    assert _file(client, **question, length="0") == []
    # The link is the whole view: somebody else of the organization finds the same.
    link = f"/explore?{urlencode({'range': '15m', **question})}"
    page = client.get(link).content.decode()
    assert f"From all {EACH} recorded requests, exact." in page
    assert demo_admin().get(link).content.decode().count(f">{EACH}<") == page.count(f">{EACH}<")
    (row,) = _file(client, **question, compare="week")
    assert "Requests, other span" not in row


def _check_ratings(client: Client, product: Product, asked: Asked) -> None:
    """Answers that their clients rate are a group, and a filter."""
    rated = {"up": asked["ann", "ads"][:1], "down": asked["bob", "ads"][:2]}
    for rating, answers in rated.items():
        for answer in answers:
            told = httpx2.post(
                f"{product.urls[0]}/v1/requests/req_{answer.request}/feedback",
                headers={"authorization": f"Bearer {product.key}"},
                json={"rating": rating},
                timeout=30.0,
                trust_env=False,
            )
            assert told.status_code == 200, told.text
    found = _file(client, by="rating")
    counts = {"none": EACH * len(asked) - 3, "thumbs down": 2, "thumbs up": 1}
    assert {row["Rating"]: int(row["Requests"]) for row in found} == counts
    (row,) = _file(client, by="end_user", rating="down")
    assert (row["End user"], row["Requests"]) == ("bob", "2")


def _check_percentiles(client: Client) -> None:
    """Those of a group, and of all groups merged."""
    totals: dict[str, list[int]] = {}
    for user, total in rows(TOTALS):
        totals.setdefault(user, []).append(total)
    for row in _file(client, by="end_user"):
        for percent in PERCENTS:
            exact = _nearest(totals[row["End user"]], percent)
            assert float(row[f"p{percent}, ms"]) == approx(exact, rel=ERROR)
    (row,) = _file(client, by="model", hours="0-24")
    everything = [total for values in totals.values() for total in values]
    for percent in PERCENTS:
        assert float(row[f"p{percent}, ms"]) == approx(_nearest(everything, percent), rel=ERROR)


def _check_rollups_and_rows_agree(client: Client, count: int) -> None:
    def read(**more: str) -> dict[str, str]:
        return next(iter(_file(client, by="model", **more)), {})

    def whole() -> bool:
        return read().get("Requests") == str(count) == read().get("n")

    wait_for(whole, "series")
    assert read() == read(hours="0-24")
    page = client.get("/explore?range=15m&by=model").content.decode()
    assert "From roll-ups, exact." in page
    # Staff look over all organizations, and at every stage of them.
    (row,) = _file(client, by="organization", organization="all", measure="s5_infer")
    assert (row["Organization"], int(row["Requests"]), int(row["n"])) == ("Demo", count, count)


def _check_another_tenant(count: int) -> None:
    charlie = signed_in(make_cast().charlie)
    assert _file(charlie, by="end_user") == []
    answer = charlie.get("/explore/groups.csv?organization=all")
    assert answer.status_code == 400
    (row,) = [one for one in _file(demo_admin(), by="model") if one["Model"] == MODEL.name]
    assert int(row["Requests"]) == count
