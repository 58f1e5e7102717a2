"""Searching the audit by actor, action, subject and time, a page at a time, by service and API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError

from controlplane.core.answers import PageAsk
from controlplane.core.audit.chain import audit_chain, chain_head
from controlplane.core.audit.entries import OPERATOR
from controlplane.tenants.audit.selectors import (
    AuditFilter,
    audit_filter,
    audit_pages,
    audit_search,
)
from controlplane.tenants.keys import apikey_create
from tests.support.people import Cast, make_cast, signed_in

MORE = 120


@pytest.fixture
def cast(database: str) -> Cast:
    """Who wrote some rows by being made."""
    return make_cast()


def actions(cast: Cast, **wanted: object) -> list[str]:
    """What matches, newest first."""
    found = audit_search(
        actor=cast.alice,
        organization_id=cast.acme.id,
        wanted=AuditFilter(**wanted),  # type: ignore[arg-type]  # Each test names its own fields.
    )
    return [row.action for row in found.rows]


def test_each_property_narrows(cast: Cast) -> None:
    key = apikey_create(actor=cast.bob, project=cast.project, label="x").key
    assert actions(cast, actor="bob@") == ["apikey.create"]
    assert actions(cast, action="apikey") == ["apikey.create"]
    assert actions(cast, subject=str(key.id)) == ["apikey.create"]
    assert actions(cast, subject="apikey") == ["apikey.create"]
    assert actions(cast, actor="bob@", action="membership") == []
    now = datetime.now(UTC)
    assert actions(cast, start=now + timedelta(minutes=1)) == []
    assert len(actions(cast, end=now + timedelta(minutes=1))) == len(actions(cast))
    # A wildcard is a letter like any other.
    assert actions(cast, actor="%") == actions(cast, action="_") == []


def test_pages_follow_each_other_without_gap_or_repeat(cast: Cast) -> None:
    for number in range(MORE):
        apikey_create(actor=cast.alice, project=cast.project, label=f"key {number}")
    everything = [
        row.id
        for rows in audit_pages(actor=cast.alice, organization_id=cast.acme.id)
        for row in rows
    ]
    assert len(everything) == len(set(everything)) > MORE
    found, after = [], None
    while True:
        page = audit_search(
            actor=cast.alice, organization_id=cast.acme.id, ask=PageAsk(after=after, limit=7)
        )
        found += [row.id for row in page.rows]
        if not page.has_more:
            break
        after = page.rows[-1].id
    assert found == everything == sorted(everything, reverse=True)


def test_only_who_may_sees_it(cast: Cast) -> None:
    with pytest.raises(PermissionDenied):
        audit_search(actor=cast.bob, organization_id=cast.acme.id)
    with pytest.raises(ObjectDoesNotExist):
        audit_search(actor=cast.charlie, organization_id=cast.acme.id)
    with pytest.raises(PermissionDenied):
        audit_search(actor=cast.alice, organization_id=None)
    assert audit_search(actor=cast.stella, organization_id=None).rows
    assert audit_search(actor=OPERATOR, organization_id=cast.acme.id).rows


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"from": "yesterday"}, "from"),
        ({"to": "9999-12-31T23:59:59+25:00"}, "to"),
        ({"from": "2026-11-02", "to": "2026-11-01"}, "to"),
        ({"actor": "x" * 201}, "actor"),
        ({"subject": "a\0b"}, "subject"),
    ],
)
def test_a_wrong_question_names_its_field(given: dict[str, str], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        audit_filter(given)
    assert set(refused.value.message_dict) == {field}


def test_the_api_answers_the_same(cast: Cast) -> None:
    apikey_create(actor=cast.bob, project=cast.project, label="x")
    path = f"/api/organizations/{cast.acme.id}/audit"
    answer = signed_in(cast.alice).get(path, {"actor": "bob@"}).json()
    (row,) = answer["data"]
    assert (row["action"], row["actor"], row["channel"]) == (
        "apikey.create",
        "bob@example.org",
        "job",
    )
    assert signed_in(cast.alice).get(path, {"from": "x"}).json()["error"]["fields"] == {
        "from": ["Must be a date, with or without a time, in UTC."]
    }
    audit_chain()
    head = chain_head()
    assert head is not None
    stella = signed_in(cast.stella)
    assert stella.get("/api/audit/head").json() == {"number": head.number, "digest": head.digest}
    assert stella.get("/api/audit", {"action": "user.create"}).json()["data"]
