"""A trial of a template: two versions side by side, over values and over kept requests.

What each sends is put together here; the browser asks the models, as the Playground does.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse

from controlplane.catalog import selectors
from controlplane.catalog.models import PromptTemplate, PromptVersion, Task
from controlplane.catalog.selectors import model_list
from controlplane.contents.replay import kept_chats
from controlplane.contents.services import may_read
from controlplane.core.permissions import Action
from controlplane.core.versions.models import State
from controlplane.kernel.ids import uuid_asked
from controlplane.kernel.prompts import BadValue, PromptBody, PromptParameters, Value, Variable
from controlplane.tenants.models import Project
from controlplane.tenants.selectors import project_get
from frontend.developers.prompt_views import HERE, VALUE_PREFIX, typed_values
from frontend.shared.access import Viewer, page, show
from frontend.shared.addresses import gateway_url
from frontend.shared.versions import listed, status_of

# Of each version; every case is two answers.
CASES_MAX = 5
TOKENS_MAX = 512
TOKENS_DEFAULT = 128
SAID_BY_REQUESTS = (
    "model", "response_format", "tools", "stored_tools", *PromptParameters.__struct_fields__
)  # fmt: skip


class TrialSide(NamedTuple):
    """What one version sends; without a `body` it refuses the values, and says why."""

    version: int
    messages: list[dict[str, Any]]
    body: str = ""
    refusal: str = ""


class TrialCase(NamedTuple):
    """The same values, or the same kept request, by both versions."""

    title: str
    sides: list[TrialSide]


class Wanted(NamedTuple):
    """What a form asks for: `model` where a version names none, at most `tokens` an answer and so
    many `cases`.
    """

    versions: list[PromptVersion]
    project: Project
    model: str
    tokens: int
    cases: int


@page("templates/<str:name>/trial", Action.PLAYGROUND_USE, "GET", "POST", name="prompt_trial")
def prompt_trial(request: HttpRequest, viewer: Viewer, name: str) -> HttpResponse:
    """The form, and what a posted one brings; posted, so that no address holds a prompt."""
    template = selectors.prompt_get(
        actor=viewer.user, organization_id=viewer.organization.id, name=name
    )
    known = selectors.prompt_versions(actor=viewer.user, template=template)
    if not known or selectors.body_of(known[0]).tool is not None:
        raise Http404
    asked = request.POST if request.method == "POST" else request.GET
    pair = _pair(known, asked.get("first", ""), asked.get("second", ""))
    fields = _fields(pair, asked)
    cases, error = list[TrialCase](), None
    if asked is request.POST:
        try:
            wanted = _wanted(request, viewer, pair)
            typed = {one.name: value for one, _, value in fields}
            kept = asked.get("source") == "kept"
            cases = _kept(viewer, name, wanted) if kept else [_case("Values", wanted, typed)]
        except ValidationError as found:
            error = found
    context = {
        "template": template,
        "versions": [(str(one.version), f"{one.version}, {one.state}") for one in known],
        "pair": [str(one.version) for one in pair],
        "variables": fields,
        **_offered(viewer, template, pair),
        "asked": asked,
        "cases": cases,
        "posted": asked is request.POST and error is None,
        "errors": listed(error),
        "gateway": gateway_url(request),
        "cases_max": CASES_MAX,
        "tokens_max": TOKENS_MAX,
        "count": asked.get("count", CASES_MAX),
        "tokens": asked.get("tokens", TOKENS_DEFAULT),
    }
    answer = show(request, viewer, HERE, "developers/prompt_trial.html", context)
    answer.status_code = 200 if error is None else status_of(error)
    return answer


def _fields(pair: list[PromptVersion], asked: Mapping[str, str]) -> list[tuple[Variable, str, str]]:
    """The variables of both, each with the name of its field and what stands in it."""
    bodies = [selectors.body_of(each) for each in reversed(pair)]
    variables = {one.name: one for body in bodies for one in body.variables}
    samples: dict[str, Value] = {}
    for body in bodies:
        samples |= selectors.sample_values(body)
    return [
        (one, VALUE_PREFIX + name, asked.get(VALUE_PREFIX + name, str(samples[name])))
        for name, one in variables.items()
    ]


def _offered(viewer: Viewer, template: PromptTemplate, pair: list[PromptVersion]) -> dict[str, Any]:
    """What may be chosen: projects, what to go over, and models where a version names none."""
    projects = [one for one in viewer.projects() if template.project_id in (None, one.id)]
    reads = any(one.keeps_days and may_read(actor=viewer.user, project=one) for one in projects)
    return {
        "projects": [(str(one.id), one.name) for one in projects],
        "sources": [("values", "these values"), *([("kept", "stored requests")] * reads)],
        "models": [one.name for one in model_list(enabled_only=True) if one.task == Task.GENERATE],
        "names_model": all(selectors.body_of(each).model for each in pair),
    }


def _pair(known: list[PromptVersion], first: str, second: str) -> list[PromptVersion]:
    """The two that are asked for; else the live one, or the oldest, and the newest."""
    by_number = {str(one.version): one for one in known}
    live = next((one for one in known if one.state == State.PUBLISHED), known[-1])
    return [by_number.get(first, live), by_number.get(second, known[0])]


def _wanted(request: HttpRequest, viewer: Viewer, pair: list[PromptVersion]) -> Wanted:
    """Raises ValidationError by field, Http404 for a project that is not theirs."""
    project = uuid_asked(request.POST.get("project", ""), "proj", Http404())
    return Wanted(
        pair,
        project_get(user=viewer.user, project_id=project),
        request.POST.get("model", ""),
        _whole(request, "tokens", TOKENS_MAX),
        _whole(request, "count", CASES_MAX),
    )


def _whole(request: HttpRequest, field: str, most: int) -> int:
    text = request.POST.get(field, "")
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= most):
        raise ValidationError({field: f"Must be a whole number from 1 to {most}."})
    return int(text)


def _kept(viewer: Viewer, name: str, wanted: Wanted) -> list[TrialCase]:
    """The newest kept chats of the project that name the template; reading them is audited."""
    found = kept_chats(
        actor=viewer.user, project=wanted.project, template=name, count_max=wanted.cases
    )
    return [_case(f"Request {one.id}", wanted, one.values, one.body) for one in found]


def _case(
    title: str, wanted: Wanted, values: dict[str, Any], said: dict[str, Any] | None = None
) -> TrialCase:
    return TrialCase(title, [_side(each, wanted, values, said) for each in wanted.versions])


def _side(
    version: PromptVersion, wanted: Wanted, values: dict[str, Any], said: dict[str, Any] | None
) -> TrialSide:
    """A version's chat with these values; a kept request's own fields win, as they did then."""
    body = selectors.body_of(version)
    try:
        given = values if said else typed_values(body, values)
        filled = selectors.prompt_dry_run(body, given).messages
    except BadValue as error:
        return TrialSide(version.version, [], refusal=f"{error.name}: {error}")
    messages = [msgspec.to_builtins(each) for each in filled]
    return TrialSide(version.version, messages, _sent(body, wanted, messages, said or {}))


def _sent(
    body: PromptBody, wanted: Wanted, messages: list[dict[str, Any]], said: dict[str, Any]
) -> str:
    own = {name: said[name] for name in SAID_BY_REQUESTS if said.get(name) is not None}
    tools = {"stored_tools": msgspec.to_builtins(body.tools)} if body.tools else {}
    whole = {"model": wanted.model, **tools, **body.settings, **own}
    bound = min(whole.get("max_tokens") or wanted.tokens, wanted.tokens)
    more = {"max_tokens": bound, "stream": True, "stream_options": {"include_usage": True}}
    turns = [*messages, *(said.get("messages") or [])]
    return msgspec.json.encode({**whole, "messages": turns, **more}).decode()
