"""Prompts and answers that projects keep: one request's, a search, an export, deleting."""

import uuid
from typing import get_args
from urllib.parse import urlencode

from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.contents import services
from controlplane.core.answers import Page, page_ask
from controlplane.core.permissions import Action
from controlplane.core.streaming import csv_answer
from controlplane.kernel.contents.kept import KeptStatus
from controlplane.kernel.ids import public_id, uuid_asked
from controlplane.tenants.models import Project
from controlplane.tenants.people.selectors import project_of
from frontend.shared.access import Viewer, page, show
from frontend.shared.forms import changes, says_wrong
from frontend.shared.said import Conversation

KEPT = "conversations/<proj:project_id>"
HERE = "conversations"
FIELDS = ("project", "words", "model", "key", "status", "end_user", "days")
STATUSES = [(status, status) for status in get_args(KeptStatus)]


@page("conversations", Action.CONTENT_READ, "GET")
@says_wrong(HERE)
def conversations(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The search, or what it finds: all of which is read, and so audited."""
    reads = [one for one in viewer.projects() if one.keeps_days]
    reads = [one for one in reads if services.may_read(actor=viewer.user, project=one)]
    given = {name: request.GET[name] for name in FIELDS if request.GET.get(name)}
    project, older = _project(viewer, given.get("project", "")), ""
    found: Page[Conversation] = Page([], has_more=False)
    if project is not None:
        wanted, ask = services.ContentFilter.of(request.GET), page_ask(request.GET, "req")
        read = services.content_page(actor=viewer.user, project=project, wanted=wanted, ask=ask)
        found = Page([Conversation(one) for one in read.rows], read.has_more)
    if found.has_more:
        older = urlencode({**given, "after": found.rows[-1].content.public_id})
    context = {
        "projects": [(public_id("proj", one.id), one.name) for one in reads],
        "project": project,
        "given": given,
        "statuses": STATUSES,
        "query": urlencode(given),
        "found": found.rows,
        "older": older,
        "deletes": viewer.may(Action.CONTENT_DELETE),
    }
    return show(request, viewer, HERE, "requests/conversations.html", context)


@page("conversations.jsonl", Action.CONTENT_READ, "GET")
def conversations_export(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    project = _project(viewer, request.GET.get("project", ""))
    try:
        wanted = services.ContentFilter.of(request.GET)
    except ValidationError:
        project = None
    if project is None:
        # The page says what is wrong.
        return redirect(f"{reverse(HERE)}?{request.GET.urlencode()}")
    lines = services.content_export(actor=viewer.user, project=project, wanted=wanted)
    return csv_answer(request, "sluice-conversations.jsonl", lines, "application/jsonl")


@page(f"{KEPT}/<req:request_id>", Action.CONTENT_READ, "POST")
def content_show(
    request: HttpRequest, viewer: Viewer, project_id: uuid.UUID, request_id: uuid.UUID
) -> HttpResponse:
    project, user = _own(viewer, project_id), viewer.user
    found = services.content_read(actor=user, project=project, request=request_id, use="read")
    deletes = viewer.may(Action.CONTENT_DELETE)
    context = {"project": project, "conversation": Conversation(found), "deletes": deletes}
    return show(request, viewer, "requests", "requests/said.html", context)


@page(f"{KEPT}/forget", Action.CONTENT_DELETE, "POST", name="end_user_remove")
@changes(f"{KEPT}/<req:request_id>/delete", Action.CONTENT_DELETE, HERE)
def content_remove(
    request: HttpRequest, viewer: Viewer, project_id: uuid.UUID, request_id: uuid.UUID | None = None
) -> str:
    """Of one request, or else of one end user."""
    project, name = _own(viewer, project_id), request.POST.get("end_user", "")
    if request_id is None:
        count = services.end_user_delete(actor=viewer.user, project=project, end_user=name)
    else:
        count = services.content_delete(actor=viewer.user, project=project, request=request_id)
    return f"Deleted: prompts and answers of {count} requests."


def _project(viewer: Viewer, text: str) -> Project | None:
    """The project that is asked for; None before anything is."""
    return _own(viewer, uuid_asked(text, "proj", Http404())) if text else None


def _own(viewer: Viewer, project_id: uuid.UUID) -> Project:
    own = viewer.organization.id
    return project_of(actor=viewer.user, organization_id=own, project_id=project_id)
