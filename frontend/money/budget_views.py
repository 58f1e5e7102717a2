"""Budgets: what the organization, its projects and keys may spend in a day, a week or a month."""

import uuid
from collections.abc import Iterable
from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from msgspec.structs import asdict

from controlplane.billing.budgets.api import subject_of
from controlplane.billing.budgets.models import BudgetPeriod
from controlplane.billing.budgets.selectors import budget_list
from controlplane.billing.budgets.services import BudgetDraft, ProjectPart, budget_end, budget_plan
from controlplane.catalog.selectors import model_list
from controlplane.changes.content import BudgetEntry
from controlplane.changes.limits import LimitChanges, public_subject
from controlplane.core.permissions import Action
from controlplane.kernel.ids import uuid_asked
from controlplane.tenants.models import ApiKey
from controlplane.tenants.selectors import apikey_list
from frontend.money.spend_figures import budget_name
from frontend.shared.access import Viewer, page, show
from frontend.shared.forms import changes, cleaned, nano_of
from frontend.shared.stepup import stepped_up

PERIOD_WORDS = (
    (BudgetPeriod.MONTH.value, "Monthly"),
    (BudgetPeriod.WEEK.value, "Weekly, from Monday"),
    (BudgetPeriod.DAY.value, "Daily"),
    (BudgetPeriod.NONE.value, "Total"),
)
ALERTS_USUAL = "50, 80, 100"


class BudgetForm(forms.Form):
    """A budget; the service checks everything again."""

    subject = forms.UUIDField()
    amount = forms.CharField(max_length=32)
    period = forms.ChoiceField(choices=PERIOD_WORDS)
    zone = forms.CharField(max_length=64)
    rollover = forms.BooleanField(required=False)
    alerts = forms.CharField(max_length=64, required=False)
    model = forms.CharField(max_length=100, required=False)
    per_user = forms.BooleanField(required=False)


@page("budgets", Action.LEDGER_VIEW, "GET", name="budgets")
def budget_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    keys = apikey_list(user=viewer.user, organization_id=viewer.organization.id)
    names = limited_names(viewer, keys)
    rows = budget_list(actor=viewer.user, organization=viewer.organization.id)
    context = {
        "rows": [(row, budget_name(row, names)) for row in rows],
        "models": [(one.name, one.name) for one in model_list()],
        "subjects": [(str(key), name) for key, name in names.items()],
        "periods": PERIOD_WORDS,
        "zones": sorted(available_timezones()),
        "alerts_usual": ALERTS_USUAL,
        "sets": viewer.may(Action.BUDGET_SET),
        "drafts": viewer.may(Action.LIMIT_SET),
    }
    return show(request, viewer, "budgets", "money/budgets.html", context)


@changes("budgets/save", Action.BUDGET_SET, "budgets", confirmed=True)
def budget_save(request: HttpRequest, viewer: Viewer) -> str:
    wanted, draft = _typed(request)
    part = {name: wanted[name] for name in ("model", "per_user")}
    subject = subject_of(viewer.organization.id, wanted["subject"], **part)
    budget_plan(actor=viewer.user, subject=subject, draft=draft)
    return "The budget is saved; gateways apply it within two seconds."


@changes("budgets/draft", Action.LIMIT_SET, "budgets")
def budget_draft(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The same form, to be tried on recorded requests first."""
    wanted, draft = _typed(request)
    subject = subject_of(viewer.organization.id, wanted["subject"])
    part = {name: wanted[name] for name in ("model", "per_user")}
    if isinstance(subject, ProjectPart):
        part = {"model": subject.model, "per_user": not subject.model}
        subject = subject.project
    entry = BudgetEntry(of=public_subject(subject), **part, **asdict(draft))
    made = LimitChanges(**viewer.whose).draft_add(entry)
    return redirect("limit_changes_version", made.version)


def _typed(request: HttpRequest) -> tuple[dict[str, Any], BudgetDraft]:
    wanted = cleaned(BudgetForm(request.POST))
    terms = {name: wanted[name] for name in ("period", "zone", "rollover")}
    return wanted, BudgetDraft(
        allowance_nano=nano_of(wanted["amount"], "amount"),
        alerts=_percentages(wanted["alerts"]),
        **terms,
    )


@page("budgets/stop", Action.BUDGET_SET, "POST")
@stepped_up
def budget_stop(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    subject = uuid_asked(request.POST.get("subject", ""), "", Http404())
    budget_end(actor=viewer.user, subject=subject_of(viewer.organization.id, subject))
    messages.success(request, "The budget is removed.")
    return redirect("budgets")


def limited_names(viewer: Viewer, keys: Iterable[ApiKey]) -> dict[uuid.UUID, str]:
    """What budgets are of, by their ids: the organization, its projects and these keys."""
    organization = viewer.organization
    names = {organization.id: f"{organization.name} as a whole"}
    names |= {one.id: f"Project {one.name}" for one in viewer.projects()}
    return names | {one.limits_id: f"Key {one.label}" for one in reversed([*keys])}


def _percentages(text: str) -> tuple[int, ...]:
    words = text.replace(",", " ").replace("%", " ").split()
    if not all(word.isascii() and word.isdigit() for word in words):
        raise ValidationError({"alerts": "Must be percentages such as 50, 80, 100."})
    return tuple(int(word) for word in words)
