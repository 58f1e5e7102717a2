"""Explore: the page and its files. The URL is the whole view, so a link is a saved one."""

import uuid
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from controlplane.catalog.selectors import model_list, pool_list
from controlplane.core.permissions import Action
from controlplane.insights.models import VIEW_NAME_CHARS_MAX, VIEW_QUERY_CHARS_MAX, SavedView
from controlplane.insights.saved import view_list, view_remove, view_save
from controlplane.kernel.ids import public_id
from controlplane.telemetry.selectors_requests import FINISHES
from controlplane.telemetry.services import RECORD_DAYS
from controlplane.tenants.selectors import key_names, organization_names
from frontend.explore import question as known
from frontend.explore.chart import make_chart
from frontend.explore.figures import Exploring, basis_words, make_exploring
from frontend.explore.question import ALL, STAFF_ALONE, ExploreQuestion, question_from
from frontend.explore.reads import is_staff, read_findings
from frontend.shared.access import Viewer, page, show
from frontend.shared.asked import in_time, marks_of
from frontend.shared.filters import RATINGS, RELATIVE, STATUSES, STREAMS, choices
from frontend.shared.forms import changes, made_by
from frontend.shared.panels import panel_csv
from frontend.shared.plots.marks import marked


class ViewForm(forms.Form):
    """A name for the question that the page shows."""

    name = forms.CharField(max_length=VIEW_NAME_CHARS_MAX)
    query = forms.CharField(max_length=VIEW_QUERY_CHARS_MAX, required=False)
    shared = forms.BooleanField(required=False)


def _asked(query: QueryDict, viewer: Viewer) -> ExploreQuestion:
    return question_from(query, timezone.now(), staff=is_staff(viewer))


def _read(viewer: Viewer, question: ExploreQuestion) -> Exploring | None:
    """None where there is too much to read in time."""
    return in_time(lambda: make_exploring(question, read_findings(viewer, question)))


@page("explore", Action.REQUEST_VIEW, "GET", name="explore")
def explore_index(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    # A form sends its empty fields, too: links to share do without them.
    if "" in request.GET.values():
        given = request.GET.copy()
        for name in [name for name, text in request.GET.items() if not text]:
            del given[name]
        return redirect(f"{reverse('explore')}?{given.urlencode()}")
    return _index(request, viewer, _asked(request.GET, viewer), ViewForm())


def _index(
    request: HttpRequest, viewer: Viewer, question: ExploreQuestion, form: ViewForm
) -> HttpResponse:
    found = _read(viewer, question)
    chart = make_chart(found) if found and not found.empty else None
    marks = marks_of(viewer, question.within) if found and found.over_time else []
    context = {
        "question": question,
        "within": question.within,
        "ranges": RELATIVE,
        "found": found,
        "figure": chart,
        "figures": {chart.name: marked(chart.as_json(), marks)} if chart else {},
        "marks": marks,
        "csv": "explore_csv",
        "basis": _basis(found, question, timezone.now()) if found else "",
        "form": form,
        "saved": view_list(actor=viewer.user, organization_id=viewer.organization.id),
        "removes_all": viewer.may(Action.ORGANIZATION_UPDATE),
        **_options(viewer, question),
    }
    return show(request, viewer, "explore", "explore/page.html", context, form.errors)


@page("explore/views", Action.REQUEST_VIEW, "POST")
def explore_save(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Save the question shown under a name, and show it again."""
    form = ViewForm(request.POST.dict())
    question = _asked(QueryDict(request.POST.get("query", "")), viewer)

    def save() -> SavedView:
        return view_save(
            actor=viewer.user,
            organization_id=viewer.organization.id,
            name=form.cleaned_data["name"],
            query=question.query,
            shared=form.cleaned_data["shared"],
        )

    made = made_by(form, save)
    if made is None:
        return _index(request, viewer, question, form)
    whom = "all members" if made.shared else "you"
    messages.success(request, f"“{made.name}” is saved for {whom}.")
    return redirect(f"{reverse('explore')}?{made.query}")


@changes("explore/views/<view:view_id>/remove", Action.REQUEST_VIEW, "explore")
def explore_forget(request: HttpRequest, viewer: Viewer, view_id: uuid.UUID) -> str:
    gone = view_remove(actor=viewer.user, organization_id=viewer.organization.id, view_id=view_id)
    return f"“{gone.name}” is removed."


@page("explore/<slug:chart>.csv", Action.REQUEST_VIEW, "GET")
def explore_csv(request: HttpRequest, viewer: Viewer, chart: str) -> HttpResponse:
    question = _asked(request.GET, viewer)
    if question.complaint:
        return HttpResponse(
            question.complaint, status=400, content_type="text/plain; charset=utf-8"
        )
    found = _read(viewer, question)
    if found is None:
        raise Http404
    return panel_csv([found.table, make_chart(found)], chart)


def _basis(found: Exploring, question: ExploreQuestion, now: datetime) -> list[str]:
    told = [basis_words(found.findings.now, question)]
    by_rows = found.findings.now.rows is not None
    if by_rows and question.within.start < now - timedelta(days=RECORD_DAYS):
        told.append(f"Requests are kept for {RECORD_DAYS} days: older ones are not counted here.")
    if found.findings.before is not None:
        words = basis_words(found.findings.before, question) if found.before else "no requests."
        label = other.label if (other := question.other_span) else ""
        told.append(f"Other span, {label}: {words}")
    if by_rows and question.measure == "inter_token":
        told.append("Time between tokens is each request's mean.")
    return told


def _options(viewer: Viewer, question: ExploreQuestion) -> dict[str, Any]:
    """What the form offers."""
    filters, staff = question.filters, is_staff(viewer)
    keys = key_names(user=viewer.user, organization_id=viewer.organization.id)
    models = [(one.name, one.name) for one in model_list(removed=True)]
    projects = [(public_id("proj", one.id), one.name) for one in viewer.projects()]
    dimensions = [
        (name, text)
        for name, text in known.DIMENSION_WORDS.items()
        if staff or name not in STAFF_ALONE
    ]
    organizations = None
    if staff:
        names = organization_names(actor=viewer.user)
        pairs = [(public_id("org", one), name) for one, name in names.items()]
        organizations = choices([(ALL, "all organizations"), *pairs], question.organization)
    return {
        "dimensions": dimensions,
        "measures": list(known.MEASURES_OFFERED.items()),
        "compared": list(known.COMPARED.items()),
        "orders": list(known.ORDERS.items()),
        "organizations": organizations,
        "models": choices(models, filters.model),
        "projects": choices(projects, filters.project),
        "keys": choices([(public_id("key", one), name) for one, name in keys.items()], filters.key),
        "statuses": STATUSES,
        "streams": STREAMS,
        "finishes": FINISHES,
        "ratings": RATINGS,
        "pools": choices([(one.name, one.name) for one in pool_list()], filters.pool),
        "lengths": list(known.LENGTHS.items()),
    }
