"""Playground: the page, its ten-minute token, and what a finished request cost.

The browser talks to the gateway itself; of prompts only kept ones pass through these views.
"""

import uuid
from typing import Any

import msgspec
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache

from controlplane.billing.ledger.selectors import request_charge
from controlplane.catalog.models import Task
from controlplane.catalog.selectors import model_list
from controlplane.contents.services import content_read
from controlplane.core.permissions import Action
from controlplane.kernel.contents.kept import body_of
from controlplane.kernel.ids import uuid_asked
from controlplane.kernel.keys.playtoken import LIFETIME_S
from controlplane.kernel.money import usd_short, usd_text
from controlplane.tenants.selectors import project_get
from controlplane.tenants.services import playground_token_create
from frontend.shared.access import Viewer, page, show
from frontend.shared.addresses import gateway_url
from frontend.shared.said import prompt_turns
from frontend.shared.snippets import SNIPPETS

CHAT = "/v1/chat/completions"
FORMATS = (("", "Text"), ("json_object", "JSON object"), ("json_schema", "JSON schema"))
PROMPT = "Which seven stages does a request take in Sluice?"


@page("playground", Action.PLAYGROUND_USE, "GET", "POST")
def playground(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Empty, or with what was said in a request that was kept."""
    kept = _kept(request, viewer) if request.method == "POST" else None
    context = {
        "models": [one.name for one in model_list(enabled_only=True) if one.task == Task.GENERATE],
        "chosen": request.GET.get("model"),
        "projects": [(one.id, one.name) for one in viewer.projects()],
        "gateway": gateway_url(request),
        "languages": [(one.name, one.label) for one in SNIPPETS],
        "formats": FORMATS,
        "prompt": PROMPT,
        "kept": kept and msgspec.json.encode(kept).decode(),
    }
    return show(request, viewer, "playground", "developers/playground.html", context)


def _kept(request: HttpRequest, viewer: Viewer) -> dict[str, Any]:
    """The body of a chat that says the same; a reading, and audited as such."""
    project, said = (
        uuid_asked(request.POST.get(name, ""), prefix, Http404())
        for name, prefix in (("project", "proj"), ("request", "req"))
    )
    found = content_read(
        actor=viewer.user, project=project_get(user=viewer.user, project_id=project),
        request=said, use="play",
    )  # fmt: skip
    body = body_of(found)
    if found.path == CHAT and isinstance(body, dict):
        return body
    return {"messages": [{"role": turn.role, "content": turn.text} for turn in prompt_turns(body)]}


@page("playground/token", Action.PLAYGROUND_USE, "POST")
@never_cache
def playground_token(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """A token that the page keeps in memory only."""
    try:
        project_id = uuid.UUID(request.POST.get("project", ""))
    except ValueError:
        return JsonResponse({"error": "project: choose one of the list"}, status=400)
    project = project_get(user=viewer.user, project_id=project_id)
    made = playground_token_create(actor=viewer.user, project=project)
    return JsonResponse({"token": made, "lifetime_s": LIFETIME_S})


@page("playground/cost/<req:request_id>", Action.PLAYGROUND_USE, "GET")
@never_cache
def playground_cost(request: HttpRequest, viewer: Viewer, request_id: uuid.UUID) -> HttpResponse:
    """What the ledger has charged for a request; `null` while it is still open."""
    nano = request_charge(organization=viewer.organization.id, request=request_id)
    if nano is None:
        return JsonResponse({"cost": None, "exact": None})
    return JsonResponse({"cost": usd_short(nano), "exact": usd_text(nano)})
