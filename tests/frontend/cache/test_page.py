"""The Cache page through Django's client: who may divide by tenants, and what they see there."""

from __future__ import annotations

import csv
import io

import pytest

from controlplane.core.permissions import Role
from controlplane.tenants.people.services import membership_set
from tests.support.people import Cast, make_cast, signed_in
from tests.support.records import make_record
from tests.support.traffic import store

PAGE = "/cache?range=24h&by=organization"


@pytest.fixture
def cast(database: str) -> Cast:
    """Acme and Other asked alike; half of Acme's prompts came from the cache. Stella is in Acme."""
    made = make_cast()
    membership_set(actor=made.alice, organization=made.acme, user=made.stella, role=Role.DEVELOPER)
    store(
        [
            make_record(
                organization=organization.id.hex, project=project.id.hex, model="small",
                prompt_tokens=1_000, cached_tokens=cached,
            )
            for organization, project, cached in (
                (made.acme, made.project, 500), (made.other, made.other_project, 100)
            )
        ]
    )  # fmt: skip
    return made


def rows_of(content: bytes) -> list[list[str]]:
    """A CSV file's rows below its head."""
    return list(csv.reader(io.StringIO(content.decode())))[1:]


def test_staff_see_tenants_side_by_side_and_take_them_away(cast: Cast) -> None:
    stella = signed_in(cast.stella)
    text = stella.get(PAGE).content.decode()
    assert "Hit rate by organization, all tenants" in text and "Other" in text
    found = rows_of(stella.get(PAGE.replace("/cache?", "/cache/by.csv?")).content)
    assert {row[0]: row[1:5] for row in found} == {
        "Acme": ["1", "1000", "500", "50.0"],
        "Other": ["1", "1000", "100", "10.0"],
    }
    # A project belongs to one of them, a model that nobody asked to none.
    narrowed = PAGE.replace("/cache?", "/cache/by.csv?")
    only = rows_of(stella.get(f"{narrowed}&project={cast.project.id.hex}").content)
    assert [row[0] for row in only] == ["Acme"]
    assert rows_of(stella.get(f"{narrowed}&model=large").content) == []


def test_to_everybody_else_there_is_no_such_way_to_divide(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    text = alice.get(PAGE).content.decode()
    assert "is not a way to divide the cache" in text and "Hit rate by route" in text
    assert ">Other<" not in text
    assert "by=organization" not in alice.get("/cache?range=24h").content.decode()
    found = rows_of(alice.get(PAGE.replace("/cache?", "/cache/by.csv?")).content)
    assert [row[0] for row in found] == ["direct"]
