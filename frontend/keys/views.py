"""Keys: the list, a new key whose secret is shown once, rotation, revocation, and the report."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils import timezone

from controlplane.billing.budgets.models import Budget, BudgetPeriod
from controlplane.billing.budgets.selectors import budget_map
from controlplane.billing.budgets.services import BudgetDraft
from controlplane.catalog.selectors import model_list
from controlplane.composed.keys.services import KeyOrder, key_make, key_report, keys_missed_soon
from controlplane.composed.limits.selectors import effective_limits
from controlplane.core.permissions import Action
from controlplane.kernel.keys.scopes import ENDPOINTS
from controlplane.kernel.money import MICRO_PER_USD, NANO_PER_USD, micro_from_usd
from controlplane.kernel.rules import PRIORITY_HIGH, PRIORITY_LOW, PRIORITY_NORMAL
from controlplane.quotas.models import RateLimit
from controlplane.quotas.selectors import rate_limit_map
from controlplane.telemetry.selectors import key_last_used
from controlplane.tenants import keys, models
from controlplane.tenants.selectors import PAGE_ROWS_MAX, apikey_get, apikey_list, project_get
from controlplane.tenants.services import REASON_CHARS_MAX
from frontend.keys.limit_views import LIMIT_WORDS, LimitsForm, effective_rows
from frontend.shared.access import Viewer, page, show
from frontend.shared.forms import made_by, says_wrong
from frontend.shared.stepup import secret_page

NEVER = ""
LIFETIMES = (
    ("30", "30 days"),
    (str(keys.KEY_LIFETIME_DAYS_DEFAULT), "90 days"),
    ("365", "1 year"),
    (NEVER, "Never"),
)
PRIORITY_WORDS = ((PRIORITY_LOW, "Low"), (PRIORITY_NORMAL, "Normal"), (PRIORITY_HIGH, "High"))
# Each with a space or a comma after it, and a space.
TAGS_CHARS_MAX = models.TAGS_MAX * (models.TAG_CHARS_MAX + 2)
NETWORKS_CHARS_MAX = models.NETWORKS_MAX * (models.NETWORK_CHARS_MAX + 2)
BUDGET_CHARS_MAX = 20
ENDPOINT_WORDS = (
    ("chat", "Chat completions"),
    ("messages", "Messages (Anthropic's API)"),
    ("completions", "Completions"),
    ("embeddings", "Embeddings"),
    ("rerank", "Rerank"),
    ("score", "Score"),
    ("moderations", "Moderations"),
    ("tokenize", "Tokenize and detokenize"),
    ("batches", "Files and batches"),
    ("models", "List of models"),
    ("key", "What the key may do"),
)
OVERLAPS = (
    (0, "immediately"),
    (keys.A_DAY_S // 24, "1 hour"),
    (keys.OVERLAP_S_DEFAULT, "1 day"),
    (3 * keys.A_DAY_S, "3 days"),
    (keys.OVERLAP_S_MAX, "7 days"),
)


@dataclass(frozen=True)
class KeyRow:
    key: models.ApiKey
    state: str
    last_used: datetime | None
    limit: RateLimit | None
    budget: Budget | None
    missed_soon: bool = False

    @property
    def tone(self) -> str:
        return {"active": "ok", "expired": "warn"}.get(self.state, "off")

    @property
    def active(self) -> bool:
        return self.state == "active"

    @property
    def rotates(self) -> bool:
        """Whether a new key can take over from it."""
        return self.active and not self.key.replaced

    @property
    def priority(self) -> str:
        """In a word; empty where it is the usual one."""
        usual = self.key.priority == PRIORITY_NORMAL
        return "" if usual else PRIORITY_WORDS[self.key.priority][1].lower()


class KeyForm(LimitsForm):
    """A new key; the service checks everything again. Each form drawn has an id and works once."""

    form_id = forms.UUIDField()
    label = forms.CharField(max_length=models.NAME_CHARS_MAX)
    lifetime = forms.ChoiceField(
        choices=LIFETIMES, required=False, initial=str(keys.KEY_LIFETIME_DAYS_DEFAULT)
    )
    tags = forms.CharField(max_length=TAGS_CHARS_MAX, required=False)
    endpoints = forms.MultipleChoiceField(choices=ENDPOINT_WORDS, required=False)
    read_only = forms.BooleanField(required=False)
    networks = forms.CharField(max_length=NETWORKS_CHARS_MAX, required=False)
    budget = forms.CharField(max_length=BUDGET_CHARS_MAX, required=False)
    budget_period = forms.ChoiceField(choices=BudgetPeriod.choices, required=False)

    def __init__(self, viewer: Viewer, data: QueryDict | None = None) -> None:
        super().__init__(data)
        names = [(one.name, one.name) for one in model_list(enabled_only=True)]
        choices = [(str(one.id), one.name) for one in viewer.projects()]
        # Going before others takes the right to set limits; the service sees to it.
        high = PRIORITY_HIGH if viewer.may(Action.LIMIT_SET) else PRIORITY_NORMAL
        self.fields["priority"] = forms.ChoiceField(
            choices=PRIORITY_WORDS[: high + 1], required=False, initial=PRIORITY_NORMAL
        )
        self.fields["project"] = forms.ChoiceField(choices=choices)
        self.fields["models"] = forms.MultipleChoiceField(choices=names, required=False)
        self.budgets = viewer.may(Action.BUDGET_SET)
        for name, words in LIMIT_WORDS.items():
            self.fields[name].label = words

    @property
    def limit_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in LIMIT_WORDS]

    def order(self) -> KeyOrder:
        """What a valid form asks for; raises ValidationError."""
        wanted = self.cleaned_data
        return KeyOrder(
            label=wanted["label"],
            terms=keys.KeyTerms(
                models=wanted["models"] or None,
                endpoints=wanted["endpoints"] or None,
                read_only=wanted["read_only"],
                networks=wanted["networks"].replace(",", " ").split(),
                tags=wanted["tags"].replace(",", " ").split(),
                priority=int(wanted["priority"] or PRIORITY_NORMAL),
            ),
            lifetime_days=int(wanted["lifetime"]) if wanted["lifetime"] != NEVER else None,
            limits=self.limits,
            budget=self._budget(wanted["budget"], wanted["budget_period"]),
            form=wanted["form_id"],
        )

    def _budget(self, text: str, period: str) -> BudgetDraft | None:
        if not text:
            return None
        try:
            nano = micro_from_usd(text) * (NANO_PER_USD // MICRO_PER_USD)
        except ValueError as error:
            raise ValidationError({"budget": "Must be dollars, like 25 or 0.5."}) from error
        return BudgetDraft(allowance_nano=nano, period=period or BudgetPeriod.NONE.value)


def _rows(viewer: Viewer) -> list[KeyRow]:
    now, organization = timezone.now(), viewer.organization.id
    limits = rate_limit_map(user=viewer.user)
    found = apikey_list(user=viewer.user, organization_id=organization)
    budgets = budget_map(organization=organization, subjects=[key.limits_id for key in found])
    used, missed = (
        key_last_used(organization),
        keys_missed_soon(organization=organization, keys=found),
    )
    return [
        KeyRow(
            key,
            key.state(now),
            used.get(key.id),
            limits.get(key.limits_id) or limits.get(key.project_id),
            budgets.get(key.limits_id),
            key.id in missed,
        )
        for key in found
    ]


def _index(
    request: HttpRequest,
    viewer: Viewer,
    /,
    form: KeyForm | None = None,
    *,
    made: keys.CreatedKey | None = None,
) -> HttpResponse:
    rows, form = _rows(viewer), form or KeyForm(viewer)
    context = {
        "rows": rows,
        "cut_off": len(rows) == PAGE_ROWS_MAX,
        "rows_max": PAGE_ROWS_MAX,
        "form": form,
        "form_id": uuid.uuid4().hex,
        "made": made,
        "reason_chars_max": REASON_CHARS_MAX,
        "overlaps": OVERLAPS,
        "overlap_usual": keys.OVERLAP_S_DEFAULT,
    }
    return show(request, viewer, "keys", "keys/list.html", context, form.errors)


page("keys", Action.KEY_VIEW, "GET", name="keys")(_index)


@secret_page("keys/create", Action.KEY_CREATE, "GET", "POST")
@says_wrong("keys")
def key_create(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Make a key and show its secret in this one answer, which nothing stores."""
    if request.method == "GET":
        return redirect("keys")
    form = KeyForm(viewer, request.POST)

    def make() -> keys.CreatedKey:
        project_id = uuid.UUID(form.cleaned_data["project"])
        project = project_get(user=viewer.user, project_id=project_id)
        return key_make(actor=viewer.user, project=project, order=form.order())

    made = made_by(form, make)
    if made is None:
        return _index(request, viewer, form)
    return _index(request, viewer, made=made)


@page("keys/<key:apikey_id>/revoke", Action.KEY_REVOKE, "POST")
def key_revoke(request: HttpRequest, viewer: Viewer, apikey_id: uuid.UUID) -> HttpResponse:
    key = apikey_get(user=viewer.user, apikey_id=apikey_id)
    typed = "".join(char for char in request.POST.get("reason", "") if char.isprintable())
    reason = typed.strip()[:REASON_CHARS_MAX]
    if keys.apikey_revoke(actor=viewer.user, key=key, reason=reason):
        messages.success(request, f"Key “{key.label}” is revoked; gateways refuse it from now on.")
    else:
        messages.info(request, f"Key “{key.label}” was already revoked.")
    return redirect("keys")


@secret_page("keys/<key:apikey_id>/rotate", Action.KEY_CREATE, "POST")
@says_wrong("keys")
def key_rotate(request: HttpRequest, viewer: Viewer, apikey_id: uuid.UUID) -> HttpResponse:
    """Let a new key take over, and show its secret in this one answer."""
    key = apikey_get(user=viewer.user, apikey_id=apikey_id)
    asked = request.POST.get("overlap", "")
    known = asked in {str(seconds) for seconds, _ in OVERLAPS}
    overlap_s = int(asked) if known else keys.OVERLAP_S_DEFAULT
    made = keys.apikey_rotate(actor=viewer.user, key=key, overlap_s=overlap_s)
    return _index(request, viewer, made=made)


@page("keys/<key:apikey_id>", Action.KEY_VIEW, "GET", name="key")
def key_detail(request: HttpRequest, viewer: Viewer, apikey_id: uuid.UUID) -> HttpResponse:
    """What a key is for, what binds it, and what it touched: the report for a leaked one."""
    key = apikey_get(user=viewer.user, apikey_id=apikey_id)
    names = [one.name for one in model_list(enabled_only=True)]
    if key.allowed_models is not None:
        names = [name for name in names if name in key.allowed_models]
    model = request.GET.get("model") or (names[0] if names else "")
    effective = effective_limits(key=key, model=model) if model else None
    context = {
        "row": KeyRow(key, key.state(timezone.now()), None, None, None),
        "key": key,
        "endpoints": ", ".join(sorted(keys.endpoints_of(keys.terms_of(key)), key=ENDPOINTS.index)),
        "report": key_report(key=key),
        "models": names,
        "model": model,
        "effective": effective,
        "limits": effective_rows(effective.rows) if effective else [],
        "reason_chars_max": REASON_CHARS_MAX,
        "overlaps": OVERLAPS,
        "overlap_usual": keys.OVERLAP_S_DEFAULT,
    }
    return show(request, viewer, "keys", "keys/detail.html", context)
