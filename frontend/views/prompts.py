"""Templates: stored prompts, their versions, what a version sends, and how it is put in force."""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from controlplane.catalog import prompts
from controlplane.catalog.models import PROMPT_NOTE_CHARS_MAX, PromptState, PromptVersion
from controlplane.catalog.selectors_prompts import (
    DryRun,
    body_of,
    prompt_dry_run,
    prompt_get,
    prompt_list,
    prompt_version_get,
    prompt_versions,
    sample_values,
)
from controlplane.core.conflict import Conflict
from controlplane.core.permissions import Action
from controlplane.kernel.prompts import BadValue, PromptBody, Value, find_problems, stable_bytes
from controlplane.kernel.rules import PERMILLE
from frontend.access import Viewer, page
from frontend.formats import percent

HERE = "prompts"
WRONG, LATE = 422, 409
TEXT_CHARS_MAX = 200_000
SHARE_STEP = PERMILLE // 100
VALUE_PREFIX = "value-"
TONES = {"published": "ok", "canary": "warn", "draft": "off", "retired": "off"}
FIRST = {
    "messages": [
        {"role": "system", "content": "What is the same in every request stands here, first."},
        {"role": "user", "content": "{{question}}"},
    ],
    "variables": [{"name": "question", "chars_max": 2000}],
}


@dataclass(frozen=True)
class Outcome:
    """What a form brought: typed values or text to stand in it again, and how it went."""

    typed: dict[str, str] | None = None
    tried: DryRun | None = None
    text: str | None = None
    error: ValidationError | None = None

    @property
    def status(self) -> int:
        """Of the answer."""
        if self.error is None:
            return 200
        return LATE if isinstance(self.error, Conflict) else WRONG


NOTHING = Outcome()


class NewForm(forms.Form):
    """A template's name and whose it is; the service checks both."""

    name = forms.CharField(max_length=64)
    project = forms.UUIDField(required=False)


class DraftForm(forms.Form):
    """A draft as it was typed, and the revision that it changes."""

    body = forms.CharField(max_length=TEXT_CHARS_MAX, strip=False)
    note = forms.CharField(max_length=PROMPT_NOTE_CHARS_MAX, required=False)
    revision = forms.IntegerField(min_value=1)


class RevisionForm(forms.Form):
    """Which revision was on the screen."""

    revision = forms.IntegerField(min_value=1)


class CanaryForm(RevisionForm):
    """A share in per cent."""

    share = forms.DecimalField(min_value=0, max_value=100, decimal_places=1)


@page(Action.TEMPLATE_VIEW)
@require_GET
def prompt_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """All templates of the organization."""
    return _index(request, viewer)


@page(Action.TEMPLATE_MANAGE)
@require_POST
def prompt_new(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """A template with a first draft to edit."""
    form = NewForm(request.POST)
    try:
        if not form.is_valid():
            raise ValidationError(form.errors.as_data())
        made = prompts.prompt_create(
            actor=viewer.user,
            organization_id=viewer.organization.id,
            name=form.cleaned_data["name"],
            project_id=form.cleaned_data["project"],
        )
        draft = prompts.prompt_draft_create(actor=viewer.user, template=made, body=FIRST)
    except ValidationError as error:
        return _index(request, viewer, error)
    return redirect("prompt_version", made.name, draft.version)


@page(Action.TEMPLATE_VIEW)
@require_GET
def prompt_version(request: HttpRequest, viewer: Viewer, name: str, version: int) -> HttpResponse:
    """One version: its messages, what caches, and beside which version it differs."""
    return _version_page(request, viewer, _named(viewer, name, version))


@page(Action.TEMPLATE_VIEW)
@require_POST
def prompt_try(request: HttpRequest, viewer: Viewer, name: str, version: int) -> HttpResponse:
    """What the version sends with these variables; posted, so that no address holds a prompt."""
    found = _named(viewer, name, version)
    body = body_of(found)
    typed = {one.name: request.POST.get(VALUE_PREFIX + one.name, "") for one in body.variables}
    try:
        tried = prompt_dry_run(body, _values(body, typed))
    except BadValue as error:
        wrong = ValidationError({f"variables.{error.name}": str(error)})
        return _version_page(request, viewer, found, Outcome(typed=typed, error=wrong))
    return _version_page(request, viewer, found, Outcome(typed=typed, tried=tried))


@page(Action.TEMPLATE_MANAGE)
@require_POST
def prompt_act(
    request: HttpRequest, viewer: Viewer, name: str, version: int, action: str
) -> HttpResponse:
    """Every button of a version is one service, and says how it went."""
    act = ACTIONS.get(action)
    if act is None:
        raise Http404
    found = _named(viewer, name, version)
    try:
        now, told = act(request, viewer, found)
    except ValidationError as error:
        found = _named(viewer, name, version)
        outcome = Outcome(error=error, text=request.POST.get("body"))
        return _version_page(request, viewer, found, outcome)
    messages.success(request, told)
    return redirect("prompt_version", name, now.version)


Done = tuple[PromptVersion, str]


def _save(request: HttpRequest, viewer: Viewer, version: PromptVersion) -> Done:
    read = _cleaned(DraftForm(request.POST))
    version.revision = read["revision"]
    try:
        body = msgspec.json.decode(read["body"])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValidationError({"body": f"Not JSON: {error}."}) from error
    now = prompts.prompt_draft_update(
        actor=viewer.user, version=version, body=body, note=read["note"]
    )
    return now, f"Draft {now.version} is saved."


def _publish(request: HttpRequest, viewer: Viewer, version: PromptVersion) -> Done:
    version.revision = _cleaned(RevisionForm(request.POST))["revision"]
    now = prompts.prompt_publish(actor=viewer.user, version=version)
    return now, f"Version {now.version} is in force; gateways follow within two seconds."


def _canary(request: HttpRequest, viewer: Viewer, version: PromptVersion) -> Done:
    read = _cleaned(CanaryForm(request.POST))
    version.revision, share = read["revision"], int(read["share"] * SHARE_STEP)
    now = prompts.prompt_canary_start(actor=viewer.user, version=version, share_permille=share)
    return now, f"{read['share']} % of requests that name no version get version {now.version}."


def _stop(request: HttpRequest, viewer: Viewer, version: PromptVersion) -> Done:
    now = prompts.prompt_canary_stop(actor=viewer.user, version=version)
    return now, f"The trial of version {now.version} has ended."


def _discard(request: HttpRequest, viewer: Viewer, version: PromptVersion) -> Done:
    now = prompts.prompt_draft_discard(actor=viewer.user, version=version)
    return now, f"Draft {now.version} is given up; it can still be read and copied."


def _copy(request: HttpRequest, viewer: Viewer, version: PromptVersion) -> Done:
    made = prompts.prompt_draft_create(
        actor=viewer.user, template=version.template, body=version.body
    )
    return made, f"Version {made.version} is a draft: no request gets it yet."


def _rollback(request: HttpRequest, viewer: Viewer, version: PromptVersion) -> Done:
    made = prompts.prompt_rollback(actor=viewer.user, template=version.template, to=version)
    return made, f"Version {version.version} is in force again, as version {made.version}."


ACTIONS: dict[str, Callable[[HttpRequest, Viewer, PromptVersion], Done]] = {
    "save": _save,
    "publish": _publish,
    "canary": _canary,
    "stop": _stop,
    "discard": _discard,
    "copy": _copy,
    "rollback": _rollback,
}


def _index(
    request: HttpRequest, viewer: Viewer, error: ValidationError | None = None
) -> HttpResponse:
    context = {
        "viewer": viewer,
        "here": HERE,
        "rows": prompt_list(actor=viewer.user, organization_id=viewer.organization.id),
        "manages": viewer.may(Action.TEMPLATE_MANAGE),
        "projects": viewer.projects(),
        "errors": _listed(error),
        "typed": request.POST.get("name", ""),
        "room": prompts.TEMPLATES_MAX,
    }
    return render(request, "pages/prompts.html", context, status=WRONG if error else 200)


def _version_page(
    request: HttpRequest, viewer: Viewer, version: PromptVersion, outcome: Outcome = NOTHING
) -> HttpResponse:
    body, template = body_of(version), version.template
    versions = prompt_versions(actor=viewer.user, template=template)
    in_force = next((one for one in versions if one.state == PromptState.PUBLISHED), None)
    tried = outcome.tried
    values = outcome.typed or {name: str(value) for name, value in sample_values(body).items()}
    context: dict[str, Any] = {
        "viewer": viewer,
        "here": HERE,
        "template": template,
        "version": version,
        "tone": TONES[version.state],
        "draft": version.state == PromptState.DRAFT,
        "on_trial": version.state == PromptState.CANARY,
        "share": percent(version.share_permille, PERMILLE),
        "manages": viewer.may(Action.TEMPLATE_MANAGE),
        "in_force": in_force,
        "versions": [(one, TONES[one.state]) for one in versions],
        "messages_shown": tried.messages if tried else body.messages,
        "stable_bytes": stable_bytes(body),
        "problems": find_problems(body),
        "text": _text(version) if outcome.text is None else outcome.text,
        "variables": [
            (one, VALUE_PREFIX + one.name, values.get(one.name, "")) for one in body.variables
        ],
        "tried": tried,
        "difference": _difference(in_force, version),
        "use": _use(template.name, body),
        "errors": _listed(outcome.error),
        "note_chars_max": PROMPT_NOTE_CHARS_MAX,
        "share_max": PERMILLE // 10 - 1,
    }
    return render(request, "pages/prompt_version.html", context, status=outcome.status)


def _named(viewer: Viewer, name: str, version: int) -> PromptVersion:
    organization: uuid.UUID = viewer.organization.id
    template = prompt_get(actor=viewer.user, organization_id=organization, name=name)
    return prompt_version_get(actor=viewer.user, template=template, version=version)


def _values(body: PromptBody, typed: dict[str, str]) -> dict[str, Value]:
    """Typed texts as values; an integer that is none is refused by its variable."""
    found: dict[str, Value] = {}
    for variable in body.variables:
        text = typed[variable.name]
        if not text and not (variable.required and variable.default is None):
            continue
        whole = text.removeprefix("-")
        number = variable.type == "integer" and whole.isascii() and whole.isdecimal()
        found[variable.name] = int(text) if number and len(whole) <= 20 else text
    return found


def _text(version: PromptVersion) -> str:
    return msgspec.json.format(msgspec.json.encode(version.body), indent=2).decode()


def _difference(before: PromptVersion | None, after: PromptVersion) -> str:
    """What changes against the version in force, line by line; empty where nothing does."""
    if before is None or before.id == after.id:
        return ""
    lines = difflib.unified_diff(
        _text(before).splitlines(),
        _text(after).splitlines(),
        f"version {before.version}",
        f"version {after.version}",
        lineterm="",
    )
    return "\n".join(lines)


def _use(name: str, body: PromptBody) -> str:
    use = {
        "model": "…",
        "stream": True,
        "prompt": {"id": name, "variables": {one.name: "…" for one in body.variables}},
    }
    return msgspec.json.format(msgspec.json.encode(use), indent=2).decode()


def _cleaned(form: forms.Form) -> dict[str, Any]:
    if not form.is_valid():
        raise ValidationError(form.errors.as_data())
    found: dict[str, Any] = form.cleaned_data
    return found


def _listed(error: ValidationError | None) -> list[tuple[str, str]]:
    if error is None:
        return []
    return [(name, " ".join(told)) for name, told in error.message_dict.items()]
