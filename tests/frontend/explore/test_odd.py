"""Odd questions are told what is wrong with them, and are no error of the server."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.support.people import Cast, make_cast, signed_in
from tests.support.servers import Servers, drop_database, make_database

FIRST_DAY = {"from": "0001-01-01T00:00", "to": "0001-01-02T00:00"}
LAST_DAY = {"from": "9999-12-30T00:00", "to": "9999-12-31T23:59:59"}
ODD = (
    {"label": "=x"},
    {"label": " =="},
    {"label": "a\0b"},
    {"label": "x" * 701},
    {"against": "9999-12-31T23:59"},
    {"against": "0001-01-01"},
    {"against": "0999-01-01"},
    {"against": "2026-02-30"},
    {"hours": "24-1"},
    {"hours": "9-9"},
    {"length": "99"},
    {"organization": "org_x"},
    {"template": "a\0"},
    {**FIRST_DAY, "compare": "previous"},
    {**FIRST_DAY, "by": "time", "compare": "week"},
    {**LAST_DAY, "by": "time", "measure": "queue"},
)
FINE = (
    {"label": "a="},
    {"label": "é=\u2028"},
    {"hours": "9-0"},
    {"hours": "23-24"},
    {"by": "time", "then": "time"},
    {"by": "prompt_bucket", "then": "label"},
    {"measure": "none", "order": "p95"},
    {"template": "%s{}'\"--"},
    {"user": "'); drop"},
    {"compare": "previous", "by": "time", "then": "hour"},
    {"against": "1970-01-01"},
)


@pytest.fixture(scope="module")
def cast(servers: Servers) -> Iterator[Cast]:
    make_database(servers.postgres)
    yield make_cast()
    drop_database(servers.postgres)


@pytest.mark.parametrize("query", ODD, ids=str)
def test_what_cannot_be_read_is_told(cast: Cast, query: dict[str, str]) -> None:
    alice, text = signed_in(cast.alice), urlencode(query)
    page = alice.get(f"/explore?{text}")
    assert page.status_code == 200
    assert 'class="message warn"' in page.content.decode()
    assert alice.get(f"/explore/groups.csv?{text}").status_code == 400


@pytest.mark.parametrize("query", FINE, ids=str)
def test_what_is_odd_but_can_be_read_is_answered(cast: Cast, query: dict[str, str]) -> None:
    page = signed_in(cast.alice).get(f"/explore?{urlencode(query)}")
    assert page.status_code == 200
    assert 'class="message warn"' not in page.content.decode()


@pytest.mark.parametrize("path", ["overview", "latency", "cache", "requests"])
@pytest.mark.parametrize("query", [FIRST_DAY | {"compare": "previous"}, LAST_DAY], ids=str)
def test_no_range_leaves_the_calendar(cast: Cast, path: str, query: dict[str, str]) -> None:
    assert signed_in(cast.alice).get(f"/{path}?{urlencode(query)}").status_code in (200, 404)
