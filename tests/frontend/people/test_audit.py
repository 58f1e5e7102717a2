"""The audit's pages: search, paging, what a row says, and the CSV with its guard."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.slos.services import objective_create
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.people.services import membership_set
from frontend.people.audit_views import COLUMNS, ROWS
from tests.support.objectives import draft
from tests.support.people import Cast, make_cast, signed_in

FORMULA = "=HYPERLINK(1)"


@pytest.fixture
def cast(database: str) -> Cast:
    """Alice owns Acme."""
    return make_cast()


def text_of(answer: Any) -> str:
    """A page's text."""
    assert answer.status_code == 200
    return str(answer.content.decode())


def csv_of(answer: Any) -> list[dict[str, str]]:
    """The lines of a streamed file."""
    assert answer.status_code == 200
    body = b"".join(answer.streaming_content).decode()
    return list(csv.DictReader(io.StringIO(body, newline="")))


def test_a_row_says_who_what_and_from_where(cast: Cast) -> None:
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.FINANCE)
    text = text_of(signed_in(cast.alice).get("/audit", {"action": "membership"}))
    assert "alice@example.org" in text and "membership.set" in text and "Membership" in text
    assert "<del>developer</del>" in text and "<ins>finance</ins>" in text


def test_figures_are_told_with_their_units(cast: Cast) -> None:
    objective_create(actor=cast.alice, organization=cast.acme.id, draft=draft(target_ppm=950_000))
    text = text_of(signed_in(cast.alice).get("/audit"))
    assert re.search(r">target</span>\s*<ins>95 %</ins>", text) and "950000" not in text
    assert "<ins>yes</ins>" in text and "<ins></ins>" not in text
    # What a new thing is made of is folded: a row stays one line.
    assert re.search(r"<details>\s*<summary>\d\d values</summary>", text)


def test_search_paging_and_the_empty_answer(cast: Cast) -> None:
    for number in range(ROWS + 3):
        apikey_create(actor=cast.alice, project=cast.project, label=f"key {number}")
    alice = signed_in(cast.alice)
    first = text_of(alice.get("/audit", {"action": "apikey"}))
    assert first.count('<th scope="row"') == ROWS
    (older,) = re.findall(r'href="(/audit\?[^"]+)">Older', first)
    second = text_of(alice.get(older.replace("&amp;", "&")))
    assert second.count('<th scope="row"') == 3 and "Older" not in second
    assert "API key: create" in text_of(alice.get("/audit", {"subject": "API key"}))
    assert "No change matches" in text_of(alice.get("/audit", {"actor": "nobody"}))
    assert "from: Must be a date" in text_of(alice.get("/audit", {"from": "x"}))
    assert "That page does not exist" in text_of(alice.get("/audit", {"after": "x"}))


def test_the_installations_rows_are_for_staff(cast: Cast) -> None:
    assert "User: create" in text_of(signed_in(cast.stella).get("/audit/installation"))
    assert signed_in(cast.alice).get("/audit/installation").status_code == 403
    assert signed_in(cast.bob).get("/audit").status_code == 403
    assert "User: create" not in text_of(signed_in(cast.alice).get("/audit"))


def test_the_file_has_every_row_and_no_formula(cast: Cast) -> None:
    for number in range(ROWS + 3):
        apikey_create(actor=cast.alice, project=cast.project, label=f"key {number}")
    alice = signed_in(cast.alice)
    alice.post(
        "/organization", {"organization": str(cast.acme.id)}, headers={"user-agent": FORMULA}
    )
    lines = csv_of(alice.get("/audit.csv", {"action": "apikey"}))
    assert len(lines) == ROWS + 3
    assert list(lines[0]) == [column.name for column in COLUMNS]
    assert alice.get("/audit.csv", {"from": "x"}).status_code == 400


def test_what_a_stranger_sent_is_no_formula_in_the_file(cast: Cast) -> None:
    stella = signed_in(cast.stella)
    answer = stella.put(
        "/api/fleet/pools/night",
        {},
        content_type="application/json",
        headers={"user-agent": FORMULA},
    )
    assert answer.status_code == 201
    lines = csv_of(stella.get("/audit/installation.csv", {"action": "pool.set"}))
    assert [line["agent"] for line in lines] == [f"'{FORMULA}"]
    assert OPERATOR.actor_label not in {line["actor"] for line in lines}
