"""The list of requests: its filters, its order, what it is made of, and all of it as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator

import psycopg
import pytest
from django.db import transaction
from django.test import Client

from controlplane.billing.budgets.services import BudgetDraft, budget_plan
from controlplane.core.permissions import organization_scope
from controlplane.kernel.ids import public_id
from controlplane.kernel.limits import ReachedLimit
from controlplane.kernel.receipt import Receipt
from controlplane.telemetry.models import RequestRecord
from controlplane.tenants.keys import apikey_create
from frontend.requests.refused import budget_words, find_refused, limit_door
from frontend.shared.access import find_viewer
from tests.browser.history import write_history
from tests.support.money import dsn
from tests.support.people import Cast, make_cast, signed_in
from tests.support.servers import Servers, drop_database, make_database

RANGE = "range=6h"
SHOW = "SELECT telemetry_exemplars(%s::text[], %s::text[], %s::text[], %s::text[])"


@pytest.fixture(scope="module")
def written(servers: Servers) -> Iterator[Cast]:
    """Acme has three hours of requests."""
    make_database(servers.postgres)
    made = make_cast()
    key = apikey_create(actor=made.alice, project=made.project, label="=nightly").key
    write_history(made, key, "tiny")
    yield made
    drop_database(servers.postgres)


@pytest.fixture
def cast(written: Cast) -> Iterator[Cast]:
    """What a test writes besides is rolled back."""
    with transaction.atomic():
        yield written
        transaction.set_rollback(True)


def _records(cast: Cast) -> list[RequestRecord]:
    with organization_scope([cast.acme.id]):
        return list(RequestRecord.objects.filter(organization=cast.acme.id))


def _file(client: Client, query: str = "") -> list[dict[str, str]]:
    answer = client.get(f"/requests.csv?{RANGE}&{query}")
    assert answer.status_code == 200, answer.content
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def test_the_file_has_every_request_of_the_list_and_exact_money(cast: Cast) -> None:
    records = _records(cast)
    rows = _file(signed_in(cast.alice))
    assert [row["request"] for row in rows] == [public_id("req", one.request) for one in records]
    assert sum(int(row["cost_nano_usd"]) for row in rows) == sum(one.cost_nano for one in records)
    assert {row["key"] for row in rows} == {"'=nightly"}
    assert _file(signed_in(cast.charlie)) == []


FILTERS: list[tuple[str, Callable[[RequestRecord], bool]]] = [
    ("min_ttft_ms=60", lambda one: one.ttft_us >= 60_000),
    ("min_ms=80.5&max_ms=300.25", lambda one: 80_500 <= one.total_us <= 300_250),
    ("max_ttft_ms=60.125", lambda one: 0 <= one.ttft_us <= 60_125),
    ("min_usd=0.00015", lambda one: one.cost_nano >= 150_000),
    ("error=rate_limit_exceeded", lambda one: one.error_code == "rate_limit_exceeded"),
    ("pool=default&region=local&route=direct", lambda one: True),
    ("pool=elsewhere", lambda one: False),
    ("region=mars", lambda one: False),
    ("route=none+v1", lambda one: False),
]


@pytest.mark.parametrize(("query", "wanted"), FILTERS)
def test_filters_leave_out_what_they_say(
    cast: Cast, query: str, wanted: Callable[[RequestRecord], bool]
) -> None:
    expected = {public_id("req", one.request) for one in _records(cast) if wanted(one)}
    assert {row["request"] for row in _file(signed_in(cast.alice), query)} == expected


@pytest.mark.parametrize(
    ("sort", "column"), [("slow", "total_us"), ("first", "ttft_us"), ("cost", "cost_nano")]
)
def test_the_first_ones_are_the_slowest_or_dearest(cast: Cast, sort: str, column: str) -> None:
    text = signed_in(cast.alice).get(f"/requests?{RANGE}&sort={sort}").content.decode()
    shown = re.findall(r'href="/requests/(req_\w{32})\?', text)
    values = sorted((getattr(one, column) for one in _records(cast)), reverse=True)
    by_id = {public_id("req", one.request): getattr(one, column) for one in _records(cast)}
    assert [by_id[one] for one in shown] == values[:50]
    assert f"sort={sort}" in text and "The 50\n" in text


def test_heads_of_the_list_order_it_and_say_by_which_it_goes(cast: Cast) -> None:
    heads = signed_in(cast.alice).get(f"/requests?{RANGE}&stream=yes&sort=slow").content.decode()
    assert '<th scope="col" class="number" aria-sort="descending"><a href="?' in heads
    assert heads.count("aria-sort") == 1
    link = next(
        part for part in heads.split('<a href="') if part.partition(">")[2].startswith("Cost")
    )
    query = link.partition('"')[0]
    assert "sort=cost" in query and "stream=yes" in query


def test_the_shares_add_up_and_lead_to_their_requests(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    text = alice.get(f"/requests?{RANGE}").content.decode()
    outcomes = Counter(f"{one.status} {one.error_code}".strip() for one in _records(cast))
    for words, count in outcomes.items():
        found = re.search(
            rf'title="{words}"(?: href="([^"]+)")?.*?number">([\d,]+)</td>', text, re.DOTALL
        )
        assert found is not None and int(found[2].replace(",", "")) == count, words
        assert found[1], words
        narrowed = alice.get(found[1].replace("&amp;", "&").replace("/requests?", "/requests.csv?"))
        assert narrowed.content.decode().count("\r\n") == count + 1


def test_a_request_that_a_limit_refused_names_it_and_leads_there_who_may(cast: Cast) -> None:
    limited = next(one for one in _records(cast) if one.status == 429)
    door = f'href="/limits#limit-{cast.project.id.hex}"'
    words = "project, 60 requests a minute"
    for person, doors in ((cast.alice, True), (cast.bob, False)):
        client = signed_in(person)
        rows = client.get(f"/requests?{RANGE}&error=rate_limit_exceeded").content.decode()
        told = client.get(f"/requests/{limited.request.hex}").content.decode()
        assert words in rows and (door in rows) == doors
        assert "limit of 60 requests a minute was used up" in told and (door in told) == doors
        assert "The request did not reach routing" in told
    limits = signed_in(cast.alice).get("/limits").content.decode()
    assert f'id="limit-{cast.project.id.hex}"' in limits
    for row in _file(signed_in(cast.bob)):
        named = (row["limit_scope"], row["limit_kind"], row["limit"])
        assert named == (("project", "requests", "60") if row["status"] == "429" else ("", "", ""))


def test_a_budget_that_refused_is_told_with_its_terms_to_those_who_see_money(cast: Cast) -> None:
    budget_plan(
        actor=cast.alice,
        subject=cast.project,
        draft=BudgetDraft(allowance_nano=5_000_000_000, period="month", zone="Europe/Berlin"),
    )
    limited = next(one for one in _records(cast) if one.status == 429)
    limit = ReachedLimit(kind="budget", scope="project", budget=cast.project.id.hex, asked=183_600)
    receipt = Receipt(limit=limit)
    for person, sees in ((cast.alice, True), (cast.bob, False)):
        viewer = find_viewer(person, str(cast.acme.id))
        words = " ".join(budget_words(viewer, limited, receipt))
        assert ("The current limit of that budget is $5.00 a month; $" in words) == sees
        assert ("of it is left now, and the period of this request ends" in words) == sees
        refused = find_refused(viewer, limited, receipt)
        assert refused is not None and (refused.door is not None) == sees
    # Shown from another organization, its link would lead to the wrong one's budgets.
    other = find_viewer(cast.charlie, None)
    assert limit_door(other, limited, limit) is None and budget_words(other, limited, receipt) == []


def test_what_cannot_be_read_is_told_and_the_file_refused(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    for query in ("min_usd=1e9", "min_ttft_ms=-1", "max_ms=1.0005", "sort=random", "range=9y"):
        assert alice.get(f"/requests.csv?{query}").status_code == 400, query
    assert "min. cost (USD)" in alice.get("/requests?min_usd=cheap").content.decode()


def test_a_percentile_leads_to_a_request_of_ones_own_that_took_so_long(cast: Cast) -> None:
    slow, fast = sorted(
        (one for one in _records(cast) if one.status == 200), key=lambda one: -one.total_us
    )[:: len(_records(cast)) // 2][:2]
    for one in (slow, fast):
        ids = f"{{{one.organization},{one.project},{one.request}}}"
        seconds = int(one.started_at.timestamp())
        figures = f"{{{seconds},{one.total_us.bit_length()},{one.total_us}}}"
        with psycopg.connect(dsn(), autocommit=True) as connection:
            connection.execute(SHOW, [[ids], ["total"], [one.model], [figures]])
    alice = signed_in(cast.alice)
    for one in (slow, fast):
        query = f"measure=total&value={one.total_us + 5}&{RANGE}&model=tiny"
        answer = alice.get(f"/requests/exemplar?{query}")
        assert answer["Location"] == f"/requests/{public_id('req', one.request)}?{RANGE}&model=tiny"
        told = signed_in(cast.charlie).get(f"/requests/exemplar?{query}", follow=True)
        assert "No recorded request of yours" in told.content.decode()
    assert "sort=first" in alice.get("/requests/exemplar?measure=ttft&value=9")["Location"]
    for query in ("measure=total", "measure=cost&value=1", "measure=total&value=-1", "value=1"):
        assert alice.get(f"/requests/exemplar?{query}").status_code == 404, query
