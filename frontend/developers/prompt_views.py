"""Templates: stored prompts, their versions, what a version sends, and how it is put in force."""

import uuid
from dataclasses import dataclass
from typing import Any

import msgspec
from django import forms
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.catalog import prompts
from controlplane.catalog import selectors as selectors
from controlplane.catalog.models import PromptVersion
from controlplane.contents.replay import TemplateReplay, template_replay
from controlplane.contents.services import may_read
from controlplane.core.permissions import Action, organization_scope
from controlplane.core.versions.models import NOTE_CHARS_MAX, State
from controlplane.kernel.ids import uuid_asked
from controlplane.kernel.prompts import BadValue, PromptBody, Value, stable_bytes
from controlplane.kernel.rules import PERMILLE
from controlplane.tenants.selectors import project_get
from frontend.shared import versions as shared
from frontend.shared.access import Viewer, page, show
from frontend.shared.formats import percent
from frontend.shared.forms import JsonField, cleaned

HERE = "prompts"
TEXT_CHARS_MAX = 200_000
VALUE_PREFIX = "value-"
FIRST = {
    "messages": [
        {"role": "system", "content": "Put text that is the same in every request here, first."},
        {"role": "user", "content": "{{question}}"},
    ],
    "variables": [{"name": "question", "chars_max": 2000}],
}


FIRST_TOOL = {
    "tool": {
        "description": "Say when a model is to call it.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
}


@dataclass(frozen=True)
class Outcome:
    """What a form brought: typed values or text to stand in it again, and how it went."""

    typed: dict[str, str] | None = None
    tried: selectors.PromptDryRun | None = None
    text: str | None = None
    error: ValidationError | None = None
    replayed: TemplateReplay | None = None

    @property
    def status(self) -> int:
        return 200 if self.error is None else shared.status_of(self.error)


NOTHING = Outcome()


class NewForm(forms.Form):
    """A name, whose it is, and whether it is a tool; the service checks the first two."""

    name = forms.CharField(max_length=64)
    project = forms.UUIDField(required=False)
    tool = forms.BooleanField(required=False)


class BodyForm(shared.DraftForm):
    """A draft as it was typed."""

    body = JsonField(max_length=TEXT_CHARS_MAX)


def _index(
    request: HttpRequest, viewer: Viewer, /, error: ValidationError | None = None
) -> HttpResponse:
    context = {
        "rows": selectors.prompt_list(**viewer.whose),
        "manages": viewer.may(Action.TEMPLATE_MANAGE),
        "projects": [(one.id, one.name) for one in viewer.projects()],
        "errors": shared.listed(error),
        "typed": request.POST.get("name", ""),
        "room": prompts.TEMPLATES_MAX,
    }
    return show(request, viewer, HERE, "developers/prompts.html", context, error)


page("templates", Action.TEMPLATE_VIEW, "GET", name="prompts")(_index)


@page("templates/new", Action.TEMPLATE_MANAGE, "POST")
def prompt_new(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    try:
        read = cleaned(NewForm(request.POST))
        name, project = read["name"], read["project"]
        made = prompts.prompt_create(**viewer.whose, name=name, project_id=project)
        first = FIRST_TOOL if read["tool"] else FIRST
        draft = prompts.PromptVersions(viewer.user, made).draft_create(first)
    except ValidationError as error:
        return _index(request, viewer, error)
    return redirect("prompt_version", made.name, draft.version)


@page("templates/<str:name>/<int:version>", Action.TEMPLATE_VIEW, "GET")
def prompt_version(request: HttpRequest, viewer: Viewer, name: str, version: int) -> HttpResponse:
    """One version: its messages, what caches, and beside which version it differs."""
    return _version_page(request, viewer, _named(viewer, name, version))


@page("templates/<str:name>/<int:version>/try", Action.TEMPLATE_VIEW, "POST")
def prompt_try(request: HttpRequest, viewer: Viewer, name: str, version: int) -> HttpResponse:
    """What the version sends with these variables; posted, so that no address holds a prompt."""
    found = _named(viewer, name, version)
    body = selectors.body_of(found)
    typed = {one.name: request.POST.get(VALUE_PREFIX + one.name, "") for one in body.variables}
    try:
        tried = selectors.prompt_dry_run(body, typed_values(body, typed))
    except BadValue as error:
        wrong = ValidationError({f"variables.{error.name}": str(error)})
        return _version_page(request, viewer, found, Outcome(typed=typed, error=wrong))
    return _version_page(request, viewer, found, Outcome(typed=typed, tried=tried))


@page("templates/<str:name>/<int:version>/replay", Action.TEMPLATE_VIEW, "POST")
def prompt_replay(request: HttpRequest, viewer: Viewer, name: str, version: int) -> HttpResponse:
    """Kept requests by this version beside the live one; posted, since reading them is noted."""
    found = _named(viewer, name, version)
    wanted = uuid_asked(request.POST.get("project", ""), "proj", Http404())
    project = project_get(user=viewer.user, project_id=wanted)
    versions = selectors.prompt_versions(actor=viewer.user, template=found.template)
    live = next((one for one in versions if one.state == State.PUBLISHED), None)
    told = template_replay(actor=viewer.user, project=project, version=found, live=live)
    return _version_page(request, viewer, found, Outcome(replayed=told))


@page("templates/<str:name>/<int:version>/<slug:action>", Action.TEMPLATE_MANAGE, "POST")
def prompt_act(
    request: HttpRequest, viewer: Viewer, name: str, version: int, action: str
) -> HttpResponse:
    """Every button of a version is one service, and says how it went."""
    act = ACTIONS.get(action)
    if act is None:
        raise Http404
    found = _named(viewer, name, version)

    def again(error: ValidationError) -> HttpResponse:
        outcome = Outcome(error=error, text=request.POST.get("body"))
        return _version_page(request, viewer, _named(viewer, name, version), outcome)

    return shared.step_taken(
        request,
        act,
        prompts.PromptVersions(viewer.user, found.template),
        found,
        to=lambda now: reverse("prompt_version", args=[name, now.version]),
        again=again,
    )


def _rollback(
    post: QueryDict, versions: prompts.PromptVersions, version: PromptVersion
) -> tuple[PromptVersion, str]:
    made = versions.rollback(to=version)
    return made, f"Version {version.version} is live again, as version {made.version}."


ACTIONS: dict[str, shared.Step] = {
    "save": shared.save(BodyForm),
    "publish": shared.publish,
    "canary": shared.canary("requests that name no version get"),
    "stop": shared.stop("canary"),
    "discard": shared.discard,
    "copy": shared.copy,
    "rollback": _rollback,
}


def _version_page(
    request: HttpRequest, viewer: Viewer, version: PromptVersion, outcome: Outcome = NOTHING
) -> HttpResponse:
    body, template = selectors.body_of(version), version.template
    with organization_scope([version.organization_id]):
        problems = selectors.prompt_problems(version)
    versions = selectors.prompt_versions(actor=viewer.user, template=template)
    in_force = next((one for one in versions if one.state == State.PUBLISHED), None)
    tried = outcome.tried
    values = outcome.typed or {
        name: str(value) for name, value in selectors.sample_values(body).items()
    }
    context: dict[str, Any] = {
        "template": template,
        "version": version,
        "tone": shared.TONES[version.state],
        "draft": version.state == State.DRAFT,
        "on_trial": version.state == State.CANARY,
        "share": percent(version.share_permille, PERMILLE),
        "manages": viewer.may(Action.TEMPLATE_MANAGE),
        "in_force": in_force,
        "versions": [(one, shared.TONES[one.state]) for one in versions],
        "messages_shown": tried.messages if tried else body.messages,
        "stable_bytes": stable_bytes(body),
        "problems": problems,
        "shown_tool": shared.text_of(msgspec.to_builtins(body.tool)) if body.tool else "",
        "text": _written(version.body) if outcome.text is None else outcome.text,
        "variables": [
            (one, VALUE_PREFIX + one.name, values.get(one.name, "")) for one in body.variables
        ],
        "tried": tried,
        "replayed": outcome.replayed,
        "keeping": [
            (str(one.id), one.name)
            for one in viewer.projects()
            if one.keeps_days
            and template.project_id in (None, one.id)
            and may_read(actor=viewer.user, project=one)
        ],
        "beside": _beside(in_force, version, values) if tried else None,
        "difference": _difference(in_force, version),
        "use": _use(template.name, body),
        "errors": shared.listed(outcome.error),
        "note_chars_max": NOTE_CHARS_MAX,
        "share_max": shared.SHARE_MAX,
    }
    answer = show(request, viewer, HERE, "developers/prompt_version.html", context)
    answer.status_code = outcome.status
    return answer


def _named(viewer: Viewer, name: str, version: int) -> PromptVersion:
    organization: uuid.UUID = viewer.organization.id
    template = selectors.prompt_get(actor=viewer.user, organization_id=organization, name=name)
    return selectors.prompt_version_get(actor=viewer.user, template=template, version=version)


def typed_values(body: PromptBody, typed: dict[str, str]) -> dict[str, Value]:
    """Typed texts as values; an integer that is none is refused by its variable."""
    found: dict[str, Value] = {}
    for variable in body.variables:
        text = typed.get(variable.name, "")
        if not text and not (variable.required and variable.default is None):
            continue
        whole = text.removeprefix("-")
        number = variable.type == "integer" and whole.isascii() and whole.isdecimal()
        found[variable.name] = int(text) if number and len(whole) <= 20 else text
    return found


def _beside(
    live: PromptVersion | None, version: PromptVersion, typed: dict[str, str]
) -> selectors.PromptDryRun | None:
    """What the live version sends with the same values, as far as it takes them."""
    if live is None or live.id == version.id:
        return None
    body = selectors.body_of(live)
    known = {**{name: str(each) for name, each in selectors.sample_values(body).items()}, **typed}
    try:
        return selectors.prompt_dry_run(body, typed_values(body, known))
    except BadValue:
        return None


def _written(body: dict[str, Any]) -> str:
    """As it is edited: messages as they are written, not what was put into them."""
    written = {name: value for name, value in body.items() if name != "source"}
    return shared.text_of({**written, "messages": body["source"]} if "source" in body else written)


def _difference(before: PromptVersion | None, after: PromptVersion) -> str:
    """What changes against the version in force, line by line; empty where nothing does."""
    if before is None or before.id == after.id:
        return ""
    names = f"version {before.version}", f"version {after.version}"
    return shared.difference(before.body, after.body, names)


def _use(name: str, body: PromptBody) -> str:
    if body.tool is not None:
        return shared.text_of({"model": "…", "messages": ["…"], "stored_tools": [{"id": name}]})
    use = {
        **({} if body.model else {"model": "…"}),
        "stream": True,
        "prompt": {"id": name, "variables": {one.name: "…" for one in body.variables}},
    }
    return shared.text_of(use)
