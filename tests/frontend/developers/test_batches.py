"""The page of batches: how far each is, its files, its end, and who may see them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import cast as typed

import pytest
from django.test import Client

from controlplane.batches import services
from controlplane.batches.models import Batch
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.tenants.people.services import membership_set
from tests.support.batches import RESULT, make_batch
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def test_a_developer_sees_progress_and_takes_the_file_away(cast: Cast) -> None:
    done = make_batch(cast.acme.id, cast.project.id)
    make_batch(cast.other.id, cast.other_project.id)
    client = signed_in(cast.bob)
    page = client.get("/batches").content.decode()
    assert f"batch_{done.hex}" in page
    assert page.count("batch_") - page.count(f"batch_{done.hex}") == 0
    assert "1 of 3" in page
    assert cast.project.name in page
    path = f"/batches/batch_{done.hex}/output"
    assert path in page
    answer = client.get(path)
    assert b"".join(typed(Iterable[bytes], answer)) == f"{RESULT}\n".encode()
    assert "attachment" in answer["Content-Disposition"]
    assert client.get(f"/batches/batch_{done.hex}/error").status_code == 404
    assert "/cancel" not in page


def test_a_batch_is_cancelled_once_and_that_is_audited(cast: Cast) -> None:
    batch = make_batch(cast.acme.id, cast.project.id, status="in_progress")
    client = signed_in(cast.bob)
    assert f"/batches/batch_{batch.hex}/cancel" in client.get("/batches").content.decode()
    assert client.post(f"/batches/batch_{batch.hex}/cancel").status_code == 302
    assert rows("SELECT status FROM batches") == [("cancelling",)]
    ((actor, detail),) = rows(
        "SELECT actor_label, detail FROM audit_entries WHERE action = 'batch.cancel'"
    )
    assert (actor, detail) == (cast.bob.email, {"batch": f"batch_{batch.hex}"})
    assert "Cancelling" in client.get("/batches").content.decode()


@pytest.mark.parametrize("role", [Role.VIEWER, Role.FINANCE])
def test_others_see_none(cast: Cast, role: Role) -> None:
    batch = make_batch(cast.acme.id, cast.project.id, status="in_progress")
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=role)
    client: Client = signed_in(cast.bob)
    assert client.get("/batches").status_code == 403
    assert client.post(f"/batches/batch_{batch.hex}/cancel").status_code == 403
    charlie = signed_in(cast.charlie)
    assert charlie.get(f"/batches/batch_{batch.hex}/output").status_code == 404
    assert charlie.post(f"/batches/batch_{batch.hex}/cancel").status_code == 404
    with pytest.raises(Batch.DoesNotExist):
        services.batch_get(
            actor=OPERATOR, organization_id=cast.other.id, batch_id=uuid.UUID(batch.hex)
        )


def test_what_is_over_its_time_is_swept(cast: Cast) -> None:
    make_batch(cast.acme.id, cast.project.id)
    assert not services.batches_forget()
    rows("UPDATE batch_files SET expires_at = 1")
    assert services.batches_forget()
    assert rows("SELECT count(*) FROM batch_lines WHERE ok") == [(0,)]
    services.batches_forget()
    assert rows("SELECT count(*) FROM batches") == [(0,)]
