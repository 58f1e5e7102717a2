"""Projects of the organization shown; and, for staff, every project's share of full nodes."""

import uuid

from django.http import HttpRequest, HttpResponse

from controlplane.contents.services import Keeping, contents_configure
from controlplane.core.permissions import Action, Role
from controlplane.tenants import models, services
from controlplane.tenants.people.selectors import project_of, projects_of
from controlplane.tenants.selectors import PROJECTS_SHOWN_MAX, project_share, project_shares
from frontend.people.policy_views import ACTIONS, HERE, policy_form
from frontend.shared.access import Viewer, page, show
from frontend.shared.forms import changes

SAFETY_WORDS = (
    (models.SafetyMode.OFF, "Off: no checks"),
    (models.SafetyMode.FLAG, "Flag: findings are recorded"),
    (models.SafetyMode.BLOCK, "Block: findings are withheld from the client"),
)
DIGITS_MAX = 3


@page("projects", Action.ORGANIZATION_VIEW, "GET")
def projects(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    found = projects_of(**viewer.whose)
    context = {
        "projects": found,
        "policy_forms": [policy_form(project) for project in found],
        "policy_actions": ACTIONS,
        "safety": SAFETY_WORDS,
        "name_chars_max": models.NAME_CHARS_MAX,
        "creates": viewer.may(Action.PROJECT_CREATE),
        "updates": viewer.may(Action.PROJECT_UPDATE),
        "keeps": viewer.may(Action.CONTENT_MANAGE),
        "roles": [role.value for role in Role],
        "days_max": models.KEEPS_DAYS_MAX,
    }
    return show(request, viewer, HERE, "people/projects.html", context)


@changes("projects/add", Action.PROJECT_CREATE, HERE)
def project_add(request: HttpRequest, viewer: Viewer) -> str:
    made = services.project_create(
        actor=viewer.user, organization=viewer.organization, name=request.POST.get("name", "")
    )
    return f"Project “{made.name}” is created. Create a key for it next."


@changes("projects/<proj:project_id>", Action.PROJECT_UPDATE, HERE, confirmed=True)
def project_save(request: HttpRequest, viewer: Viewer, project_id: uuid.UUID) -> str:
    found = project_of(**viewer.whose, project_id=project_id)
    services.project_update(
        actor=viewer.user,
        project=found,
        safety_mode=request.POST.get("safety_mode", ""),
        allow_content_logging="allow_content_logging" in request.POST,
        strict="strict" in request.POST,
        labels=request.POST.get("labels", "").replace(",", " ").split(),
        cache_minutes=_whole(request.POST.get("cache_minutes", "0")),
        cache_shared="cache_shared" in request.POST,
    )
    name = request.POST.get("name", "")
    if name.strip() != found.name:
        services.project_rename(actor=viewer.user, project=found, name=name)
    return f"Project “{found.name}” is saved. Gateways apply it within 2 s."


@changes("projects/<proj:project_id>/keeping", Action.CONTENT_MANAGE, HERE, confirmed=True)
def project_keep(request: HttpRequest, viewer: Viewer, project_id: uuid.UUID) -> str:
    found = project_of(**viewer.whose, project_id=project_id)
    days = _whole(request.POST.get("keeps_days", ""))
    keeping = Keeping(days, request.POST.getlist("content_readers"))
    contents_configure(actor=viewer.user, project=found, keeping=keeping)
    kept = f"are kept for {days} days" if days else "are not kept"
    return f"Prompts and answers of project “{found.name}” {kept}."


def _whole(text: str) -> int:
    """A small number, -1 where it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX else -1


@page("shares", Action.ROUTING_MANAGE, "GET")
def shares(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    found = project_shares(actor=viewer.user)
    context = {
        "projects": found,
        "cut_off": len(found) == PROJECTS_SHOWN_MAX,
        "weight_min": models.WEIGHT_MIN,
        "weight_max": models.WEIGHT_MAX,
    }
    return show(request, viewer, "shares", "people/shares.html", context)


@changes("shares/<org:organization_id>/<proj:project_id>", Action.ROUTING_MANAGE, "shares")
def share_save(
    request: HttpRequest, viewer: Viewer, organization_id: uuid.UUID, project_id: uuid.UUID
) -> str:
    found = project_share(actor=viewer.user, organization_id=organization_id, project_id=project_id)
    weight = _whole(request.POST.get("weight", ""))
    services.project_weigh(actor=viewer.user, project=found, weight=weight)
    return f"Project “{found.name}” now has the weight {found.weight}."
