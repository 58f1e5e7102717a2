"""What the Routing pages change; every button is one step of a version, and says how it went."""

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect

from controlplane.core.permissions import Action
from controlplane.routing.models import RuleSet
from controlplane.routing.selectors import ruleset_get, ruleset_in_force
from controlplane.routing.services import RuleVersions
from frontend.routing.drafts import TypedDraft, draft_acted, typed_draft
from frontend.routing.views import version_page
from frontend.shared import versions as shared
from frontend.shared.access import Viewer, page
from frontend.shared.stepup import stepped_up

TEXT_CHARS_MAX = 1_000_000
# Instead of a version: what was in force before the first.
NO_RULES = "0"


class RulesForm(shared.DraftForm):
    """What a draft has beside its rules: the version it was compared with."""

    rules = forms.CharField(max_length=TEXT_CHARS_MAX, strip=False, required=False)
    rebase = forms.IntegerField(min_value=1, required=False)


class RulesCanaryForm(shared.CanaryForm):
    """A share of all requests, and whether the watch may end the trial."""

    stops_itself = forms.BooleanField(required=False)


@page("routing/draft", Action.ROUTING_MANAGE, "POST")
def routing_draft(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """A new draft: a copy of the version named, else of what is in force."""
    named = request.POST.get("version", "")
    origin = _named(viewer, named) if named else ruleset_in_force()
    rules = origin.rules if origin else []
    made = RuleVersions(viewer.user).draft_create(rules)
    messages.success(request, f"Version {made.version} is a draft and not yet used.")
    return redirect("routing_version", made.version)


@page("routing/<int:version>/save", Action.ROUTING_MANAGE, "POST")
def routing_save(request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
    rule_set = ruleset_get(actor=viewer.user, version=version)
    typed = None
    try:
        typed = typed_draft(viewer, request.POST)
        read = shared.read_of(RulesForm, request.POST, rule_set)
        versions = RuleVersions(viewer.user)
        versions.draft_update(rule_set, typed.content, read["note"], rebase=read["rebase"])
    except ValidationError as error:
        return _again(request, viewer, version, typed, error)
    messages.success(request, f"Draft {version} is saved.")
    return redirect("routing_version", version)


@page("routing/<int:version>/edit", Action.ROUTING_MANAGE, "POST")
def routing_edit(request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
    """The form after one of its buttons; nothing is saved."""
    rule_set, typed = ruleset_get(actor=viewer.user, version=version), None
    try:
        typed = typed_draft(viewer, request.POST)
        acted = draft_acted(typed, request.POST.get("act", ""))
    except ValidationError as error:
        return _again(request, viewer, version, typed, error)
    return version_page(request, viewer, rule_set, typed=acted)


def _again(
    request: HttpRequest,
    viewer: Viewer,
    version: int,
    typed: TypedDraft | None,
    error: ValidationError,
) -> HttpResponse:
    """The page with what was typed, still a change of the revision that it began with."""
    now, status = ruleset_get(actor=viewer.user, version=version), shared.status_of(error)
    return version_page(request, viewer, now, typed=typed, error=error, status=status)


def _promote(post: QueryDict, versions: RuleVersions, rule_set: RuleSet) -> tuple[RuleSet, str]:
    now = versions.canary_promote(rule_set)
    return now, f"Version {now.version} is live for all requests."


def _register(word: str, step: shared.Step, *, confirmed: bool = False) -> None:
    def view(request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
        return shared.step_taken(
            request,
            step,
            RuleVersions(viewer.user),
            ruleset_get(actor=viewer.user, version=version),
            to=lambda _: "routing",
            again=lambda error: _again(request, viewer, version, None, error),
        )

    shown = page(
        f"routing/<int:version>/{word}", Action.ROUTING_MANAGE, "POST", name=f"routing_{word}"
    )
    shown(stepped_up(view) if confirmed else view)


_register("publish", shared.publish, confirmed=True)
_register("canary", shared.canary("all requests follow", RulesCanaryForm), confirmed=True)
_register("promote", _promote, confirmed=True)
_register("stop", shared.stop("canary"))
_register("discard", shared.discard)


@page("routing/rollback", Action.ROUTING_MANAGE, "POST")
@stepped_up
def routing_rollback(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Go back to the version that the page has named: sent twice, it leads no further back."""
    named = request.POST.get("version", "")
    target = None if named == NO_RULES else _named(viewer, named)
    try:
        made = RuleVersions(viewer.user).rollback(target, to_nothing=target is None)
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
        return redirect("routing")
    what = f"a copy of version {made.copy_of.version}" if made.copy_of else "no rules"
    messages.success(request, f"Version {made.version} is live: {what}.")
    return redirect("routing")


def _named(viewer: Viewer, text: str) -> RuleSet:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise Http404
    return ruleset_get(actor=viewer.user, version=int(text))
