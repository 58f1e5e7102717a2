"""Projects of the organization shown; and, for staff, every project's share of full nodes."""

import uuid

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_POST

from controlplane.core.permissions import Action
from controlplane.tenants.models import NAME_CHARS_MAX, WEIGHT_MAX, WEIGHT_MIN, SafetyMode
from controlplane.tenants.people.selectors import project_of, projects_of
from controlplane.tenants.selectors_staff import (
    PROJECTS_SHOWN_MAX,
    project_share,
    project_shares,
)
from controlplane.tenants.services import (
    project_create,
    project_rename,
    project_update,
    project_weigh,
)
from frontend.shared.access import Viewer, page, show
from frontend.shared.stepup import stepped_up

HERE = "projects"
SAFETY_WORDS = (
    (SafetyMode.OFF, "Off: no check"),
    (SafetyMode.FLAG, "Flag: findings are recorded"),
    (SafetyMode.BLOCK, "Block: findings are withheld from the client"),
)
WEIGHT_DIGITS_MAX = 3


@page(Action.ORGANIZATION_VIEW)
@require_GET
def project_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    context = {
        "projects": projects_of(actor=viewer.user, organization_id=viewer.organization.id),
        "safety": SAFETY_WORDS,
        "name_chars_max": NAME_CHARS_MAX,
        "creates": viewer.may(Action.PROJECT_CREATE),
        "updates": viewer.may(Action.PROJECT_UPDATE),
    }
    return show(request, viewer, HERE, "people/projects.html", context)


@page(Action.PROJECT_CREATE)
@require_POST
def project_add(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    try:
        made = project_create(
            actor=viewer.user,
            organization=viewer.organization,
            name=request.POST.get("name", ""),
        )
    except ValidationError as error:
        return _failed(request, error, HERE)
    messages.success(request, f"Project “{made.name}” is created. Create a key for it next.")
    return redirect(HERE)


@page(Action.PROJECT_UPDATE)
@stepped_up
@require_POST
def project_save(request: HttpRequest, viewer: Viewer, project_id: uuid.UUID) -> HttpResponse:
    """Change a project's name and what it decides about its requests."""
    found = project_of(
        actor=viewer.user, organization_id=viewer.organization.id, project_id=project_id
    )
    try:
        project_update(
            actor=viewer.user,
            project=found,
            safety_mode=request.POST.get("safety_mode", ""),
            allow_content_logging="allow_content_logging" in request.POST,
        )
        name = request.POST.get("name", "")
        if name.strip() != found.name:
            project_rename(actor=viewer.user, project=found, name=name)
    except ValidationError as error:
        return _failed(request, error, HERE)
    messages.success(request, f"Project “{found.name}” is saved. Gateways apply it within 2 s.")
    return redirect(HERE)


@page(Action.ROUTING_MANAGE)
@require_GET
def share_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    found = project_shares(actor=viewer.user)
    context = {
        "projects": found,
        "cut_off": len(found) == PROJECTS_SHOWN_MAX,
        "weight_min": WEIGHT_MIN,
        "weight_max": WEIGHT_MAX,
    }
    return show(request, viewer, "shares", "people/shares.html", context)


@page(Action.ROUTING_MANAGE)
@require_POST
def share_save(
    request: HttpRequest, viewer: Viewer, organization_id: uuid.UUID, project_id: uuid.UUID
) -> HttpResponse:
    found = project_share(actor=viewer.user, organization_id=organization_id, project_id=project_id)
    text = request.POST.get("weight", "")
    whole = text.isascii() and text.isdecimal() and len(text) <= WEIGHT_DIGITS_MAX
    try:
        project_weigh(actor=viewer.user, project=found, weight=int(text) if whole else 0)
    except ValidationError as error:
        return _failed(request, error, "shares")
    messages.success(request, f"Project “{found.name}” now has the weight {found.weight}.")
    return redirect("shares")


def _failed(request: HttpRequest, error: ValidationError, where: str) -> HttpResponse:
    for name, told in error.message_dict.items():
        messages.error(request, f"{name}: {' '.join(told)}")
    return redirect(where)
