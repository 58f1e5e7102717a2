"""Exports as jobs: asked for here, written by workers a stretch at a time, and removed in time.

A worker that is killed leaves a claim that runs out and a file whose last bytes are not counted:
whoever comes next cuts the file to what is counted and goes on at the cursor. So a file is whole or
not there, and the same whoever wrote it.
"""

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from controlplane.billing.exports.files import remove_export
from controlplane.billing.exports.models import ERROR_CHARS_MAX, Export, ExportState
from controlplane.billing.exports.spec import ExportSpec
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.jobs.each import each_alone
from controlplane.core.permissions import Action, organization_scope
from controlplane.core.queries import rows
from controlplane.tenants.access import permitted

# Of one organization, so that none keeps the workers from the others.
OPEN_MAX = 5
# Longer than any page takes; a killed worker's export stands still for so long.
CLAIM_FOR = timedelta(seconds=30)
# Claims in a row in which nothing was written, until it is given up.
TRIES_MAX = 5
KEEP_FOR = timedelta(days=30)
KEEP_BYTES_MAX = 20 << 30
REMOVED_PER_RUN_MAX = 100
DUE_PER_RUN_MAX = 20
AT_WORK = (ExportState.WAITING, ExportState.RUNNING)

Enqueue = Callable[[uuid.UUID, uuid.UUID], None]


class DueExport(NamedTuple):
    """An export that someone should go on with, or remove."""

    organization: uuid.UUID
    export: uuid.UUID


def export_create(*, actor: Actor, spec: ExportSpec, enqueue: Enqueue) -> Export:
    """Ask for a file; `enqueue` is called with organization and export once it is committed.

    Raises ValidationError where `OPEN_MAX` of the organization are not finished.
    """
    with permitted(actor, Action.EXPORT_MAKE, spec.organization):
        if Export.objects.filter(state__in=AT_WORK).count() >= OPEN_MAX:
            raise ValidationError(
                {"kind": f"{OPEN_MAX} exports are in progress; wait until one has finished."}
            )
        made = Export.objects.create(
            organization_id=spec.organization,
            kind=spec.kind,
            grain=spec.grain,
            start=spec.start,
            end=spec.end,
            raw=spec.raw,
            created_by_label=actor.actor_label,
        )
        audit_record(
            actor,
            "export.create",
            subject=made,
            detail={
                "kind": spec.kind.value,
                "grain": spec.grain.value,
                "start": spec.start.date().isoformat(),
                "end": spec.end.date().isoformat(),
                "raw": spec.raw,
            },
        )
        transaction.on_commit(lambda: enqueue(spec.organization, made.id))
    return made


def export_claim(due: DueExport) -> Export | None:
    """Take it for `CLAIM_FOR`; None where another has it, it is finished or was tried too often."""
    with organization_scope([due.organization]):
        free = Q(claimed_until__isnull=True) | Q(claimed_until__lt=Now())
        found = Export.objects.filter(free, id=due.export, state__in=AT_WORK)
        if found.filter(tries__gte=TRIES_MAX).update(
            state=ExportState.FAILED,
            error=f"Failed after {TRIES_MAX} attempts without a result.",
            finished_at=Now(),
        ):
            remove_export(due.export)
            return None
        claim = uuid.uuid4()
        taken = found.update(
            claim=claim,
            claimed_until=Now() + CLAIM_FOR,
            state=ExportState.RUNNING,
            tries=F("tries") + 1,
        )
        return Export.objects.get(id=due.export) if taken else None


def export_save(export: Export, *fields: str, release: bool = False) -> bool:
    """Store what is written so far and keep the claim; False where another has taken it."""
    values = {name: getattr(export, name) for name in fields}
    with organization_scope([export.organization_id]):
        kept = Export.objects.filter(id=export.id, claim=export.claim).update(
            tries=0,
            claim=None if release else export.claim,
            claimed_until=None if release else Now() + CLAIM_FOR,
            **values,
        )
        return bool(kept)


def export_fail(export: Export, message: str) -> None:
    """It will not be finished; the page says why."""
    with organization_scope([export.organization_id]):
        failed = Export.objects.filter(id=export.id, claim=export.claim).update(
            state=ExportState.FAILED,
            error=message[:ERROR_CHARS_MAX],
            claim=None,
            claimed_until=None,
            finished_at=Now(),
        )
    if failed:
        remove_export(export.id)


def exports_due() -> list[DueExport]:
    """Those of all organizations that wait, or whose worker has not been heard of."""
    return _dues("SELECT organization, export FROM exports_due(%s)", DUE_PER_RUN_MAX)


def exports_prune() -> int:
    """Remove files that are too old, and the oldest where all take too much room."""
    query = "SELECT organization, export FROM exports_to_remove(%s, %s, %s)"
    due = _dues(query, KEEP_FOR, KEEP_BYTES_MAX, REMOVED_PER_RUN_MAX)
    return sum(each_alone("exports_prune", due, _prune))


def _prune(due: DueExport) -> int:
    with organization_scope([due.organization]):
        gone = Export.objects.filter(id=due.export, state=ExportState.DONE)
        removed = gone.update(state=ExportState.GONE)
    remove_export(due.export)
    return removed


def _dues(query: str, *values: Any) -> list[DueExport]:
    return [DueExport(*row) for row in rows(query, values)]
