"""Which pages make which kind of file, and how far and how large a file will be."""

from datetime import UTC, datetime, timedelta

from controlplane.billing.documents.models import DocumentKind, Invoice
from controlplane.billing.exports.models import ExportGrain, ExportKind
from controlplane.billing.exports.pages.detail import DetailPages
from controlplane.billing.exports.pages.focus import FocusPages
from controlplane.billing.exports.pages.journal import JournalPages
from controlplane.billing.exports.pages.scope import Names, Pages, Scope
from controlplane.billing.exports.pages.usage import UsagePages
from controlplane.billing.exports.spec import ExportSpec
from controlplane.billing.ledger.hours import hours, sealed_through
from controlplane.billing.ledger.models import Transfer
from controlplane.billing.ledger.services import BOOKED_DAYS_MAX, SEAL_LAG
from controlplane.core.permissions import organization_scope
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors_requests import id_floor
from controlplane.tenants.selectors import names_of

PAGES: dict[ExportKind, type[UsagePages | DetailPages | FocusPages | JournalPages]] = {
    ExportKind.USAGE: UsagePages,
    ExportKind.DETAIL: DetailPages,
    ExportKind.FOCUS: FocusPages,
    ExportKind.JOURNAL: JournalPages,
}


def pages_of(spec: ExportSpec, scope: Scope) -> Pages:
    return PAGES[spec.kind](scope)


def scope_of(spec: ExportSpec, through: datetime) -> Scope:
    """What the pages are made from, with the names of this moment."""
    return Scope(
        organization=spec.organization,
        start=spec.start,
        through=through,
        grain=spec.grain,
        raw=spec.raw,
        names=Names(*names_of(spec.organization)),
        invoices=_invoices(spec) if spec.kind is ExportKind.FOCUS else {},
    )


def through_of(spec: ExportSpec) -> datetime:
    """The whole hour up to which every line of the organization is sealed, within the range.

    Up to there nothing can be added, so every reading finds the same. Where nothing of the range
    was booked since the last seal, that is its end, or a moment ago.
    """
    recent = min(spec.end, datetime.now(UTC) - SEAL_LAG)
    sealed = max(spec.start, sealed_through() or spec.start)
    if sealed < recent and _anything_booked(spec, sealed, recent):
        recent = sealed
    hour = recent.replace(minute=0, second=0, microsecond=0)
    return max(spec.start, min(spec.end, hour))


def rows_estimated(spec: ExportSpec, through: datetime) -> int | None:
    """About how many lines, where each request is one; None for sums."""
    if spec.grain is not ExportGrain.ENTRY:
        return None
    with bounded_read([spec.organization]):
        found = hours(organizations=[spec.organization], start=spec.start, end=through, by=())
        requests = sum(one.requests for one in found)
    return requests * (2 if spec.kind is ExportKind.JOURNAL else 1)


def _invoices(spec: ExportSpec) -> dict[str, str]:
    with organization_scope([spec.organization]):
        issued = Invoice.objects.filter(organization=spec.organization, kind=DocumentKind.INVOICE)
        return {one.period: one.title for one in issued.defer("lines")}


def _anything_booked(spec: ExportSpec, since: datetime, until: datetime) -> bool:
    with bounded_read([spec.organization]):
        return Transfer.objects.filter(
            organization=spec.organization,
            request__gte=id_floor(since - timedelta(days=BOOKED_DAYS_MAX)),
            booked_at__gte=since,
            booked_at__lt=until,
        ).exists()
