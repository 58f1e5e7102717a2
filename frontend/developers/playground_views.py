"""Playground: the page, its ten-minute token, and what a finished request cost.

The browser talks to the gateway itself; nothing of a prompt passes through these views.
"""

import uuid

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from controlplane.billing.ledger.selectors import request_charge
from controlplane.catalog.models import Task
from controlplane.catalog.selectors import model_list
from controlplane.core.permissions import Action
from controlplane.kernel.keys.playtoken import LIFETIME_S
from controlplane.kernel.money import usd_short, usd_text
from controlplane.tenants.selectors import project_get
from controlplane.tenants.services import playground_token_create
from frontend.shared.access import Viewer, page, show
from frontend.shared.addresses import gateway_url
from frontend.shared.snippets import SNIPPETS

PROMPT = "Which seven stages does a request take in Sluice?"


@page(Action.PLAYGROUND_USE)
@require_GET
def playground(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    models = [one for one in model_list(enabled_only=True) if one.task == Task.GENERATE]
    context = {
        "models": models,
        "projects": viewer.projects(),
        "gateway": gateway_url(request),
        "snippets": SNIPPETS,
        "prompt": PROMPT,
    }
    return show(request, viewer, "playground", "developers/playground.html", context)


@never_cache
@page(Action.PLAYGROUND_USE)
@require_POST
def token(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """A token that the page keeps in memory only."""
    try:
        project_id = uuid.UUID(request.POST.get("project", ""))
    except ValueError:
        return JsonResponse({"error": "project: choose one of the list"}, status=400)
    project = project_get(user=viewer.user, project_id=project_id)
    made = playground_token_create(actor=viewer.user, project=project)
    return JsonResponse({"token": made, "lifetime_s": LIFETIME_S})


@never_cache
@page(Action.PLAYGROUND_USE)
@require_GET
def cost(request: HttpRequest, viewer: Viewer, request_id: uuid.UUID) -> HttpResponse:
    """What the ledger has charged for a request; `null` while it is still open."""
    nano = request_charge(organization=viewer.organization.id, request=request_id)
    if nano is None:
        return JsonResponse({"cost": None, "exact": None})
    return JsonResponse({"cost": usd_short(nano), "exact": usd_text(nano)})
