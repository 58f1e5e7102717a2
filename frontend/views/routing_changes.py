"""What the Routing pages change; every button is one service, and says how it went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from controlplane.core.conflict import Conflict
from controlplane.core.permissions import Action
from controlplane.kernel.rules import PERMILLE
from controlplane.routing.models import NOTE_CHARS_MAX, RuleSet
from controlplane.routing.rulesjson import read_rules_text
from controlplane.routing.selectors import ruleset_get, ruleset_in_force
from controlplane.routing.services import (
    ruleset_canary_promote,
    ruleset_canary_start,
    ruleset_canary_stop,
    ruleset_draft_create,
    ruleset_draft_discard,
    ruleset_draft_update,
    ruleset_publish,
    ruleset_rollback,
)
from frontend.access import Viewer, page
from frontend.stepup import stepped_up
from frontend.views.routing import version_page

TEXT_CHARS_MAX = 1_000_000
SHARE_STEP = PERMILLE // 100
WRONG, LATE = 422, 409
# Instead of a version: what was in force before the first.
NO_RULES = "0"


class DraftForm(forms.Form):
    """A draft as it was typed, the revision that it changes, the version it was compared with."""

    rules = forms.CharField(max_length=TEXT_CHARS_MAX, strip=False)
    note = forms.CharField(max_length=NOTE_CHARS_MAX, required=False)
    revision = forms.IntegerField(min_value=1)
    rebase = forms.IntegerField(min_value=1, required=False)


class RevisionForm(forms.Form):
    """Which revision was on the screen."""

    revision = forms.IntegerField(min_value=1)


class CanaryForm(RevisionForm):
    """A share in per cent of all requests."""

    share = forms.DecimalField(min_value=0, max_value=100, decimal_places=1)
    stops_itself = forms.BooleanField(required=False)


@page(Action.ROUTING_MANAGE)
@require_POST
def routing_draft(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """A new draft: a copy of the version named, else of what is in force."""
    named = request.POST.get("version", "")
    origin = _named(viewer, named) if named else ruleset_in_force()
    rules = origin.rules if origin else []
    made = ruleset_draft_create(actor=viewer.user, rules=rules)
    messages.success(request, f"Version {made.version} is a draft: nothing follows it yet.")
    return redirect("routing_version", made.version)


@page(Action.ROUTING_MANAGE)
@require_POST
def routing_save(request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
    """Save a draft; what cannot be read stays in the form, with its errors."""
    rule_set = ruleset_get(actor=viewer.user, version=version)
    form = DraftForm(request.POST)
    typed = request.POST.get("rules", ""), request.POST.get("note", "")
    try:
        if not form.is_valid():
            raise ValidationError(form.errors.as_data())
        read = form.cleaned_data
        rule_set.revision = read["revision"]
        ruleset_draft_update(
            actor=viewer.user,
            rule_set=rule_set,
            rules=read_rules_text(read["rules"]),
            note=read["note"],
            rebase=read["rebase"],
        )
    except ValidationError as error:
        status = LATE if isinstance(error, Conflict) else WRONG
        now = ruleset_get(actor=viewer.user, version=version)
        return version_page(request, viewer, now, typed=typed, error=error, status=status)
    messages.success(request, f"Draft {version} is saved.")
    return redirect("routing_version", version)


@page(Action.ROUTING_MANAGE)
@stepped_up
@require_POST
def routing_publish(request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
    """Put a draft in force."""

    def publish(rule_set: RuleSet) -> str:
        rule_set.revision = _cleaned(RevisionForm(request.POST))["revision"]
        ruleset_publish(actor=viewer.user, rule_set=rule_set)
        return f"Version {version} is in force; gateways follow within two seconds."

    return _changed(request, viewer, version, publish)


@page(Action.ROUTING_MANAGE)
@stepped_up
@require_POST
def routing_canary(request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
    """Put a draft on trial."""

    def start(rule_set: RuleSet) -> str:
        read = _cleaned(CanaryForm(request.POST))
        rule_set.revision = read["revision"]
        ruleset_canary_start(
            actor=viewer.user,
            rule_set=rule_set,
            share_permille=int(read["share"] * SHARE_STEP),
            stops_itself=read["stops_itself"],
        )
        return f"{read['share']} % of requests follow version {version} from now on."

    return _changed(request, viewer, version, start)


@page(Action.ROUTING_MANAGE)
@stepped_up
@require_POST
def routing_promote(request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
    """Put the canary in force."""

    def promote(rule_set: RuleSet) -> str:
        ruleset_canary_promote(actor=viewer.user, rule_set=rule_set)
        return f"Version {version} is in force for all requests."

    return _changed(request, viewer, version, promote)


@page(Action.ROUTING_MANAGE)
@require_POST
def routing_stop(request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
    """End the trial."""

    def stop(rule_set: RuleSet) -> str:
        reason = request.POST.get("reason", "").strip()[:NOTE_CHARS_MAX]
        ruleset_canary_stop(actor=viewer.user, rule_set=rule_set, reason=reason)
        return f"The trial of version {version} is over."

    return _changed(request, viewer, version, stop)


@page(Action.ROUTING_MANAGE)
@require_POST
def routing_discard(request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
    """Give a draft up."""

    def discard(rule_set: RuleSet) -> str:
        ruleset_draft_discard(actor=viewer.user, rule_set=rule_set)
        return f"Draft {version} is given up; it can still be read and copied."

    return _changed(request, viewer, version, discard)


@page(Action.ROUTING_MANAGE)
@stepped_up
@require_POST
def routing_rollback(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Go back to the version that the page has named: sent twice, it leads no further back."""
    named = request.POST.get("version", "")
    target = None if named == NO_RULES else _named(viewer, named)
    try:
        made = ruleset_rollback(actor=viewer.user, to=target, to_no_rules=target is None)
    except ValidationError as error:
        messages.error(request, _told(error))
        return redirect("routing")
    what = f"a copy of version {made.copy_of.version}" if made.copy_of else "it has no rules"
    messages.success(request, f"Version {made.version} is in force: {what}.")
    return redirect("routing")


def _changed(
    request: HttpRequest, viewer: Viewer, version: int, change: Callable[[RuleSet], str]
) -> HttpResponse:
    """Make the change; a refusal is told on the version's page, with its fields."""
    rule_set = ruleset_get(actor=viewer.user, version=version)
    try:
        told = change(rule_set)
    except ValidationError as error:
        status = LATE if isinstance(error, Conflict) else WRONG
        now = ruleset_get(actor=viewer.user, version=version)
        return version_page(request, viewer, now, error=error, status=status)
    messages.success(request, told)
    return redirect("routing")


def _named(viewer: Viewer, text: str) -> RuleSet:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise Http404
    return ruleset_get(actor=viewer.user, version=int(text))


def _cleaned(form: forms.Form) -> dict[str, Any]:
    if not form.is_valid():
        raise ValidationError(form.errors.as_data())
    return form.cleaned_data


def _told(error: ValidationError) -> str:
    return " ".join(message for messages_ in error.message_dict.values() for message in messages_)
