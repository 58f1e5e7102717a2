"""Exports as members see them; the right to make them is the right to see them."""

import uuid

from django.core.exceptions import ValidationError

from controlplane.billing.exports.kinds import rows_estimated, through_of
from controlplane.billing.exports.models import Export
from controlplane.billing.exports.spec import ExportSpec
from controlplane.billing.ledger.models import LedgerHour
from controlplane.core.answers import Page, PageAsk, page_read
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.telemetry.reading import bounded_read
from controlplane.tenants.access import permitted, require

# What may be streamed without a job: some seconds' work.
STREAMED_LINES_MAX = 50_000


def export_page(*, actor: Actor, organization_id: uuid.UUID, ask: PageAsk) -> Page[Export]:
    with permitted(actor, Action.EXPORT_MAKE, organization_id):
        return page_read(Export.objects.filter(organization_id=organization_id), ask)


def export_get(*, actor: Actor, organization_id: uuid.UUID, export_id: uuid.UUID) -> Export:
    """One of them; raises DoesNotExist for those of others."""
    with permitted(actor, Action.EXPORT_MAKE, organization_id):
        return Export.objects.get(organization_id=organization_id, id=export_id)


def export_streamable(*, actor: Actor, spec: ExportSpec) -> None:
    """Return if the file may be streamed at once; raises ValidationError where it is too long."""
    require(actor, Action.EXPORT_MAKE, spec.organization)
    through = through_of(spec)
    lines = rows_estimated(spec, through)
    if lines is None:
        with bounded_read([spec.organization]):
            lines = LedgerHour.objects.filter(
                organization=spec.organization, hour__gte=spec.start, hour__lt=through
            ).count()
    if lines > STREAMED_LINES_MAX:
        raise ValidationError(
            {"end": f"More than {STREAMED_LINES_MAX:,} lines: create an export instead."}
        )
