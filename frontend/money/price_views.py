"""Prices: the versions of every model's prices, and a new one; for staff."""

import re

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.catalog.selectors import model_find, model_list, price_list_all
from controlplane.catalog.services import PriceDraft, price_publish
from controlplane.core.permissions import Action
from controlplane.kernel.ids import uuid_asked
from controlplane.tenants.models import Project
from controlplane.tenants.selectors import project_shares
from frontend.shared.access import Viewer, page, show
from frontend.shared.forms import says_wrong
from frontend.shared.stepup import stepped_up

VERSIONS_SHOWN = 20
_RATE = re.compile(r"[0-9]{1,16}", re.ASCII)
_FIELDS = tuple(PriceDraft.__annotations__)


@page("prices", Action.CATALOG_MANAGE, "GET", name="prices")
def price_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    projects = project_shares(actor=viewer.user)
    context = {
        "models": [
            (model, price_list_all(actor=viewer.user, model=model)[:VERSIONS_SHOWN])
            for model in model_list()
        ],
        "projects": projects,
    }
    return show(request, viewer, "prices", "money/prices.html", context)


@page("prices/publish", Action.CATALOG_MANAGE, "POST")
@stepped_up
@says_wrong("prices")
def price_make(request: HttpRequest, viewer: Viewer) -> HttpResponse | str:
    model = model_find(name=request.POST.get("model", ""))
    if model is None:
        messages.error(request, "Model: not found.")
        return redirect("prices")
    made = price_publish(
        actor=viewer.user,
        model=model,
        draft=PriceDraft(**{name: _whole(request.POST.get(name, ""), name) for name in _FIELDS}),
        project=_project(viewer, request.POST.get("project", "")),
    )
    return f"Version {made.version} of {model.name} applies from now on."


def _project(viewer: Viewer, text: str) -> Project | None:
    if not text:
        return None
    wanted = uuid_asked(text, "proj", Http404())
    for one in project_shares(actor=viewer.user):
        if one.id == wanted:
            return one
    raise Http404


def _whole(text: str, field: str) -> int:
    if _RATE.fullmatch(text.strip()) is None:
        raise ValidationError({field: "Must be a whole number."})
    return int(text)
