"""Batches as members see and end them, and the sweeping of files whose time is over."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.db import connection

from controlplane.batches.models import Batch
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.permissions import Action, organization_scope
from controlplane.tenants.access import permitted
from controlplane.tenants.models import Project

LISTED_MAX = 50
FORGOTTEN_AT_ONCE = 100
DAY_S = 86_400


def batch_list(*, actor: Actor, organization_id: uuid.UUID) -> list[Batch]:
    """The newest `LISTED_MAX`."""
    with permitted(actor, Action.BATCH_MANAGE, organization_id):
        return list(Batch.objects.filter(organization=organization_id).order_by("-id")[:LISTED_MAX])


def batch_get(*, actor: Actor, organization_id: uuid.UUID, batch_id: uuid.UUID) -> Batch:
    """Raises DoesNotExist for those of others."""
    with permitted(actor, Action.BATCH_MANAGE, organization_id):
        return Batch.objects.get(organization=organization_id, id=f"batch_{batch_id.hex}")


def batch_cancel(*, actor: Actor, organization_id: uuid.UUID, batch_id: uuid.UUID) -> None:
    """Begin no more of its lines; one that is over stays as it is."""
    batch = batch_get(actor=actor, organization_id=organization_id, batch_id=batch_id)
    with organization_scope([organization_id]):
        _ask("list", id=batch.id, project=batch.project.hex, cancel=True, limit=1)
        project = Project.objects.get(id=batch.project)
        audit_record(actor, "batch.cancel", subject=project, detail={"batch": batch.id})


def file_parts(project: uuid.UUID, file: str) -> Iterator[str]:
    """A project's file; nothing where there is none."""
    facts: dict[str, Any] = {"id": file, "project": project.hex}
    read = _ask("read", after=0, **facts)
    while read is not None:
        yield read["data"]
        read = _ask("read", after=read["upto"], **facts)


def batches_forget() -> bool:
    """Remove files whose time is over, at most so many at once; whether there were any."""
    kept_s = settings.BATCH_FILES_DAYS * DAY_S
    return _ask("forget", rows_max=FORGOTTEN_AT_ONCE, kept_s=kept_s) is not None


def _ask(question: str, **facts: object) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT batches_{question}(%s::jsonb)::text", [json.dumps(facts)])
        return json.loads(cursor.fetchone()[0] or "null")
