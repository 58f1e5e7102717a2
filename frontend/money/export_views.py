"""Exports: ask for a file, watch it grow, take it away with its manifest."""

from dataclasses import dataclass
from datetime import date, timedelta
from uuid import UUID

from django import forms
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from controlplane.billing.exports.api import file_answer, manifest_name
from controlplane.billing.exports.models import Export, ExportGrain, ExportKind, ExportState
from controlplane.billing.exports.selectors import export_get, export_page
from controlplane.billing.exports.services import AT_WORK, KEEP_FOR, export_create
from controlplane.billing.exports.spec import ExportSpec, days_of_period, spec_of
from controlplane.billing.exports.tasks import export_enqueue
from controlplane.core.answers import PageAsk
from controlplane.core.permissions import Action
from frontend.shared.access import Viewer, page, show

ROWS = 50
MONTHS = 13
KINDS = (
    (ExportKind.USAGE, "Usage"),
    (ExportKind.DETAIL, "Every request"),
    (ExportKind.FOCUS, "FOCUS"),
    (ExportKind.JOURNAL, "Journal"),
)
WORDS = dict(KINDS)
GRAINS = (
    ("", "day, if possible"),
    (ExportGrain.DAY, "day"),
    (ExportGrain.HOUR, "hour"),
    (ExportGrain.ENTRY, "line"),
)
TONES = {
    ExportState.DONE: "ok",
    ExportState.FAILED: "bad",
    ExportState.GONE: "off",
    ExportState.WAITING: "off",
    ExportState.RUNNING: "warn",
}


@dataclass(frozen=True)
class ExportRow:
    export: Export

    @property
    def what(self) -> str:
        return WORDS[ExportKind(self.export.kind)]

    @property
    def last(self) -> str:
        return (self.export.end - timedelta(days=1)).date().isoformat()

    @property
    def state(self) -> tuple[str, str]:
        """Tone and word; a file that ends before its range is not simply done."""
        state = ExportState(self.export.state)
        return ("warn", "Incomplete") if self.partial else (TONES[state], state.label)

    @property
    def partial(self) -> bool:
        """Whether there is a file, and the ledger was not sealed to the end of its range."""
        return self.done and not self.export.complete

    @property
    def empty(self) -> bool:
        """Whether nothing of the range was sealed when the file was written."""
        return self.partial and self.export.through == self.export.start

    @property
    def done(self) -> bool:
        return self.export.state == ExportState.DONE

    @property
    def working(self) -> bool:
        return self.export.state in AT_WORK


class ExportForm(forms.Form):
    """What to export; days, where they are given, go before the month."""

    kind = forms.ChoiceField(choices=KINDS)
    start = forms.DateField(required=False)
    end = forms.DateField(required=False)
    grain = forms.ChoiceField(choices=GRAINS, required=False)
    raw = forms.BooleanField(required=False)
    period = forms.CharField(max_length=7, required=False)

    def spec(self, organization: UUID) -> ExportSpec:
        """The checked wish; raises ValidationError by field."""
        given = self.cleaned_data
        first, last = given["start"], given["end"]
        if first and last:
            # The very last day there is has no next one; the range is too long then anyway.
            start, end = first, min(last, date.max - timedelta(days=1)) + timedelta(days=1)
        else:
            start, end = days_of_period(given["period"])
        return spec_of(
            organization,
            kind=given["kind"],
            start=start,
            end=end,
            grain=given["grain"],
            raw=given["raw"],
        )


def _rows(viewer: Viewer) -> dict[str, object]:
    found = export_page(**viewer.whose, ask=PageAsk(limit=ROWS))
    rows = [ExportRow(one) for one in found.rows]
    return {"rows": rows, "working": any(row.working for row in rows), "more": found.has_more}


def _index(request: HttpRequest, viewer: Viewer, form: ExportForm) -> HttpResponse:
    day, months = timezone.now().date().replace(day=1), []
    for _ in range(MONTHS):
        months.append(f"{day:%Y-%m}")
        day = (day - timedelta(days=1)).replace(day=1)
    context = {
        "form": form,
        "months": months,
        "period": form.data.get("period") or months[1],
        "keep_days": KEEP_FOR.days,
        **_rows(viewer),
    }
    return show(request, viewer, "exports", "money/exports.html", context, form.errors)


@page("exports", Action.EXPORT_MAKE, "GET", "POST")
def exports(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    if request.method == "GET":
        return _index(request, viewer, ExportForm())
    form = ExportForm(request.POST)
    if not form.is_valid():
        return _index(request, viewer, form)
    try:
        spec = form.spec(viewer.organization.id)
        export_create(actor=viewer.user, spec=spec, enqueue=export_enqueue)
    except ValidationError as error:
        form.add_error(None, error)
        return _index(request, viewer, form)
    return redirect("exports")


@page("exports/rows", Action.EXPORT_MAKE, "GET")
def export_rows(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    return render(request, "money/parts/export_rows.html", {"viewer": viewer, **_rows(viewer)})


@page("exports/<export:export_id>/file", Action.EXPORT_MAKE, "GET")
def export_file(request: HttpRequest, viewer: Viewer, export_id: UUID) -> StreamingHttpResponse:
    return file_answer(request, export_get(**viewer.whose, export_id=export_id))


@page("exports/<export:export_id>/manifest", Action.EXPORT_MAKE, "GET")
def export_manifest(request: HttpRequest, viewer: Viewer, export_id: UUID) -> HttpResponse:
    export = export_get(**viewer.whose, export_id=export_id)
    if export.manifest is None:
        raise Http404
    name = manifest_name(export)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return JsonResponse(export.manifest, headers=headers, json_dumps_params={"indent": 2})
