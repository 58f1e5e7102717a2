"""Explore: its figures are those of the rows, its links lead on, and it shows one's own alone."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from django.test import Client

from controlplane.core.permissions import organization_scope
from controlplane.kernel.ids import public_id
from controlplane.telemetry.models import RequestRecord
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.telemetry.rollups import roll_up
from controlplane.tenants.keys import apikey_create
from tests.browser.history import write_history
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import make_models
from tests.support.servers import Servers, drop_database, make_database

RANGE = "range=6h"


@pytest.fixture(scope="module")
def cast(servers: Servers) -> Iterator[Cast]:
    """Acme has three hours of requests; one of its people is of staff."""
    make_database(servers.postgres)
    made = make_cast()
    key = apikey_create(actor=made.alice, project=made.project, label="=nightly").key
    write_history(made, key, "tiny")
    roll_up()
    yield made
    drop_database(servers.postgres)


def _records(cast: Cast) -> list[RequestRecord]:
    with organization_scope([cast.acme.id]):
        return list(RequestRecord.objects.filter(organization=cast.acme.id))


def _file(client: Client, query: str, chart: str = "groups") -> list[dict[str, str]]:
    answer = client.get(f"/explore/{chart}.csv?{RANGE}&{query}")
    assert answer.status_code == 200, answer.content
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def _page(client: Client, query: str) -> str:
    answer = client.get(f"/explore?{RANGE}&{query}")
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


@pytest.mark.parametrize("query", ["by=model", "by=key&hours=0-24", "by=status&then=error_code",
                                   "by=time&then=finish", "by=label", "by=hour&measure=prefill",
                                   "by=template&measure=none"])  # fmt: skip
def test_the_file_adds_up_to_the_rows(cast: Cast, query: str) -> None:
    rows, records = _file(signed_in(cast.alice), query), _records(cast)
    assert sum(int(row["Requests"]) for row in rows) == len(records)
    assert sum(int(row["Tokens out"]) for row in rows) == sum(one.output_tokens for one in records)
    dollars = sum(round(float(row["Cost, USD"]) * 1e9) for row in rows)
    assert dollars == sum(one.cost_nano for one in records)


def test_a_chart_over_time_is_marked_with_what_was_published(cast: Cast) -> None:
    make_models("marked")
    for query, told in (("by=time", True), ("by=model", False)):
        page = _page(signed_in(cast.alice), query)
        assert ("of marked published" in page, '"shapes": [' in page) == (told, told)


def test_keys_of_one_name_are_told_apart(cast: Cast) -> None:
    made = [
        apikey_create(actor=cast.alice, project=cast.project, label="twin").key for _ in range(2)
    ]
    records = _records(cast)[:2]
    move = "UPDATE request_records SET key = %s WHERE request = %s RETURNING 1"
    try:
        for key, record in zip(made, records, strict=True):
            rows(move, key.id, record.request)
        found = _file(signed_in(cast.alice), "by=key&hours=0-24")
        twins = [row["Key"] for row in found if "twin" in row["Key"]]
        assert len(twins) == len(set(twins)) == 2
    finally:
        for record in records:
            rows(move, record.key, record.request)


def test_words_that_people_chose_are_no_formulas(cast: Cast) -> None:
    assert [row["Key"] for row in _file(signed_in(cast.alice), "by=key")] == ["'=nightly"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("by=model", "From roll-ups, exact."),
        ("by=model&status=failed", "recorded requests, exact."),
        ("by=finish&measure=inter_token", "each request&#x27;s mean"),
        ("by=model&compare=week", "UTC: no requests."),
        ("by=finish&then=time&measure=ttft", " reached "),
        ("by=pool&measure=ttft", "had the slowest p95"),
        ("by=pool&measure=none", "had the most"),
        ("by=time&measure=none", "Requests reached"),
        ("by=model&label=team%3Dads", "matches all filters"),
    ],
)
def test_it_says_what_its_figures_are_based_on(cast: Cast, query: str, words: str) -> None:
    assert words in _page(signed_in(cast.alice), query)


def test_links_narrow_and_lead_to_the_same_requests(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    text = _page(alice, "by=error_code&then=status&status=failed")
    for found in re.findall(r'href="(/requests\?[^"]+)">([\d,]+)<', text):
        link = found[0].replace("&amp;", "&").replace("/requests?", "/requests.csv?")
        assert alice.get(link).content.decode().count("\r\n") == int(found[1]) + 1
    narrowed = re.search(r'href="/explore\?([^"]+error=rate_limit_exceeded[^"]*)"', text)
    assert narrowed is not None
    query = narrowed[1].replace("&amp;", "&").replace(RANGE, "")
    rows = _file(alice, query)
    assert [row["Error code"] for row in rows] == ["rate_limit_exceeded"]


@pytest.mark.parametrize(
    ("order", "head"),
    [("errors", "Errors"), ("rate", "Error rate"), ("in", "Tokens in"), ("cached", "Cached"),
     ("out", "Tokens out"), ("cost", "Cost, USD"), ("p50", "p50, ms"), ("p95", "p95, ms"),
     ("p99", "p99, ms"), ("n", "n"), ("requests", "Requests"), ("hits", "Hit rate")],
)  # fmt: skip
def test_heads_order_the_rows(cast: Cast, order: str, head: str) -> None:
    alice = signed_in(cast.alice)
    text = _page(alice, "by=time&then=finish")
    found = re.search(rf'<a href="\?([^"]*order={order}[^"]*)">{head}<', text)
    assert found is not None
    query = found[1].replace("&amp;", "&").replace(RANGE, "")
    values = [float(row[head]) for row in _file(alice, query) if row[head]]
    assert values == sorted(values, reverse=order != "hits")
    way = "ascending" if order == "hits" else "descending"
    assert re.search(rf'aria-sort="{way}"><a href="[^"]*">{head}<', _page(alice, query))


def test_the_newest_times_come_first_and_names_in_their_order(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    times = [row["Time"] for row in _file(alice, "by=time")]
    assert times == sorted(times, reverse=True)
    hours = [row["Hour of day"] for row in _file(alice, "by=hour&order=name")]
    assert hours == sorted(hours)


def test_the_other_span_stands_beside(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    (row,) = _file(alice, "by=model&compare=previous")
    assert "Requests, other span" not in row
    against = min(one.started_at for one in _records(cast)).strftime("%Y-%m-%dT%H:%M:%S")
    (row,) = _file(alice, f"by=model&hours=0-24&{urlencode({'against': against})}")
    assert int(row["Requests, other span"]) == len(_records(cast))
    assert "%</span>" in _page(alice, f"by=model&{urlencode({'against': against})}")


def test_blank_fields_of_the_form_are_left_out_of_the_link(cast: Cast) -> None:
    answer = signed_in(cast.alice).get(f"/explore?{RANGE}&by=pool&model=&user=&status=failed")
    assert (answer.status_code, answer["location"]) == (
        302,
        f"/explore?{RANGE}&by=pool&status=failed",
    )


UNREAD = """
by=moon measure=mood hours=9 hours=9-9 length=9 against=then compare=year order=up organization=x
organization=all by=organization template=%00
"""


@pytest.mark.parametrize("query", UNREAD.split())
def test_what_cannot_be_read_is_told(cast: Cast, query: str) -> None:
    alice = signed_in(cast.alice)
    assert "Ignored because invalid: " in _page(alice, query)
    answer = alice.get(f"/explore/groups.csv?{query}")
    assert answer.status_code == 400 and answer.content.decode().startswith("Ignored because")


def test_strangers_see_their_own_and_staff_all(cast: Cast) -> None:
    charlie = signed_in(cast.charlie)
    acme = public_id("org", cast.acme.id)
    for query in ("by=model", "by=status", f"organization={acme}&by=status", "organization=all"):
        assert "No requests reached" in _page(charlie, query)
    assert "All organizations" not in _page(charlie, "by=model")
    cast.charlie.is_staff = True
    cast.charlie.save()
    try:
        staff = signed_in(cast.charlie)
        everything = len(_records(cast))
        for query in ("by=organization&organization=all", f"by=organization&organization={acme}",
                      "by=organization&organization=all&measure=prefill"):  # fmt: skip
            (row,) = _file(staff, query)
            assert (row["Organization"], int(row["Requests"])) == ("Acme", everything)
        (row,) = _file(staff, "by=pool&organization=all&measure=prefill")
        assert int(row["n"]) > 0
        assert "From roll-ups" in _page(staff, "by=pool&organization=all&measure=prefill")
        assert "No requests reached" in _page(staff, "by=model")
    finally:
        cast.charlie.is_staff = False
        cast.charlie.save()


def test_too_much_to_read_says_what_helps(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> None:
        raise TooMuchToRead

    monkeypatch.setattr("frontend.explore.views.read_findings", late)
    alice = signed_in(cast.alice)
    assert "Too much data in this range" in _page(alice, "by=status")
    assert alice.get(f"/explore/groups.csv?{RANGE}&by=status").status_code == 404
