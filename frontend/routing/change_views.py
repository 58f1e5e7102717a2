"""What the Routing pages change; every button is one step of a version, and says how it went."""

from collections.abc import Callable
from functools import wraps

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect

from controlplane.core.permissions import Action
from controlplane.core.versions.models import NOTE_CHARS_MAX
from controlplane.routing.models import RuleSet
from controlplane.routing.selectors import ruleset_get, ruleset_in_force
from controlplane.routing.services import RuleVersions
from frontend.routing.drafts import TypedDraft, draft_acted, typed_draft
from frontend.routing.views import version_page
from frontend.shared.access import Viewer, page
from frontend.shared.forms import cleaned
from frontend.shared.stepup import stepped_up
from frontend.shared.versions import SHARE_STEP, CanaryForm, DraftForm, RevisionForm, status_of

TEXT_CHARS_MAX = 1_000_000
# Instead of a version: what was in force before the first.
NO_RULES = "0"
Step = Callable[[HttpRequest, RuleVersions, RuleSet], str]


class RulesForm(DraftForm):
    """What a draft has beside its rules: the version it was compared with."""

    rules = forms.CharField(max_length=TEXT_CHARS_MAX, strip=False, required=False)
    rebase = forms.IntegerField(min_value=1, required=False)


class RulesCanaryForm(CanaryForm):
    """A share of all requests, and whether the watch may end the trial."""

    stops_itself = forms.BooleanField(required=False)


def _step(
    word: str, *, confirmed: bool = False
) -> Callable[[Step], Callable[..., HttpResponseBase]]:
    """A view that takes a step; a refusal is told on the version's page, with its fields."""

    def made(step: Step) -> Callable[..., HttpResponseBase]:
        @wraps(step)
        def view(request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
            rule_set = ruleset_get(actor=viewer.user, version=version)
            try:
                told = step(request, RuleVersions(viewer.user), rule_set)
            except ValidationError as error:
                now = ruleset_get(actor=viewer.user, version=version)
                return version_page(request, viewer, now, error=error, status=status_of(error))
            messages.success(request, told)
            return redirect("routing")

        address = f"routing/<int:version>/{word}"
        shown = page(address, Action.ROUTING_MANAGE, "POST")
        return shown(stepped_up(view) if confirmed else view)

    return made


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
        read = cleaned(RulesForm(request.POST))
        rule_set.revision = read["revision"]
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
    now, status = ruleset_get(actor=viewer.user, version=version), status_of(error)
    return version_page(request, viewer, now, typed=typed, error=error, status=status)


@_step("publish", confirmed=True)
def routing_publish(request: HttpRequest, versions: RuleVersions, rule_set: RuleSet) -> str:
    rule_set.revision = cleaned(RevisionForm(request.POST))["revision"]
    versions.publish(rule_set)
    return f"Version {rule_set.version} is live; gateways apply it within two seconds."


@_step("canary", confirmed=True)
def routing_canary(request: HttpRequest, versions: RuleVersions, rule_set: RuleSet) -> str:
    read = cleaned(RulesCanaryForm(request.POST))
    rule_set.revision, share = read["revision"], int(read["share"] * SHARE_STEP)
    versions.canary_start(rule_set, share, stops_itself=read["stops_itself"])
    return f"{read['share']} % of requests follow version {rule_set.version} from now on."


@_step("promote", confirmed=True)
def routing_promote(request: HttpRequest, versions: RuleVersions, rule_set: RuleSet) -> str:
    versions.canary_promote(rule_set)
    return f"Version {rule_set.version} is live for all requests."


@_step("stop")
def routing_stop(request: HttpRequest, versions: RuleVersions, rule_set: RuleSet) -> str:
    versions.canary_stop(rule_set, request.POST.get("reason", "").strip()[:NOTE_CHARS_MAX])
    return f"The canary of version {rule_set.version} has ended."


@_step("discard")
def routing_discard(request: HttpRequest, versions: RuleVersions, rule_set: RuleSet) -> str:
    versions.draft_discard(rule_set)
    return f"Draft {rule_set.version} is discarded; it can still be read and copied."


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
