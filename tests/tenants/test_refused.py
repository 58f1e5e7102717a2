"""Who asks for another tenant's things is told that there are none, and leaves a row for staff."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from controlplane.core.counts import SharedCounts
from controlplane.tenants import access
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in


@pytest.fixture
def cast(database: str, monkeypatch: pytest.MonkeyPatch) -> Cast:
    monkeypatch.setattr(access, "counts", SharedCounts())
    return make_cast()


def refused() -> list[tuple[Any, ...]]:
    """Rows about attempts: by whom, on which organization, whose log they are in."""
    return rows(
        "SELECT actor_label, subject_id, organization_id, detail->>'action' FROM audit_entries"
        " WHERE action = 'access.refuse' ORDER BY id"
    )


def test_an_attempt_leaves_one_row_a_minute(cast: Cast, redis_url: str) -> None:
    alice = signed_in(cast.alice)
    for _ in range(3):
        assert alice.get(f"/api/organizations/{cast.other.id}/members").status_code == 404
    assert refused() == [(cast.alice.email, cast.other.id, None, "member.view")]
    signed_in(cast.bob).get(f"/api/organizations/{cast.other.id}/projects")
    assert [label for label, *_ in refused()] == [cast.alice.email, cast.bob.email]


def test_a_row_stays_when_the_change_is_rolled_back(cast: Cast, redis_url: str) -> None:
    answer = signed_in(cast.alice).post(
        f"/api/organizations/{cast.other.id}/projects",
        {"name": "mine"},
        content_type="application/json",
        headers={"Idempotency-Key": "k"},
    )
    assert answer.status_code == 404
    assert [action for *_, action in refused()] == ["organization.view"]


def test_what_nobody_has_leaves_none(cast: Cast, redis_url: str) -> None:
    alice = signed_in(cast.alice)
    assert alice.get(f"/api/organizations/{uuid.uuid4()}/members").status_code == 404
    assert alice.get(f"/api/organizations/{cast.acme.id}/members").status_code == 200
    assert refused() == []
