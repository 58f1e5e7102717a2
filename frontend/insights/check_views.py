"""Check a request: the browser asks the gateway itself, as the playground does."""

import json

from django.http import HttpRequest, HttpResponse

from controlplane.catalog.models import Task
from controlplane.catalog.selectors import model_list
from controlplane.core.permissions import Action
from controlplane.kernel.insights.fixes import AGENTS, FIXES
from frontend.shared.access import Viewer, page, show
from frontend.shared.addresses import gateway_url


@page("insights/check", Action.PLAYGROUND_USE, "GET")
def insights_check(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """A form with a request to begin with, and each finding's fix as code for each client."""
    models = [one.name for one in model_list(enabled_only=True) if one.task == Task.GENERATE]
    body = {
        "model": next(iter(models), ""),
        "messages": [{"role": "user", "content": "What is a hold?"}],
    }
    context = {
        "tab": "check",
        "gateway": gateway_url(request),
        "projects": [(one.id, one.name) for one in viewer.projects()],
        "clients": list(AGENTS),
        "fixes": FIXES,
        "body": json.dumps(body, indent=2),
    }
    return show(request, viewer, "insights", "insights/check.html", context)
