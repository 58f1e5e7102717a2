"""Fleet: pools with their nodes, enrolment, approvals, drains and removals; for staff."""

import uuid
from collections.abc import Callable
from datetime import datetime

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from controlplane.catalog.models import PlanMode, Pool, PoolRole, Task
from controlplane.catalog.pools import pool_draft, pool_set
from controlplane.catalog.selectors import model_list, pool_find, pool_list
from controlplane.core.permissions import Action
from controlplane.fleet import services
from controlplane.fleet.models import DigestState, EnrolmentToken, ModelDigest, Node
from controlplane.fleet.overview import freshness, limits_alone, signals
from controlplane.fleet.selectors import digest_list, fleet_get, token_list
from controlplane.kernel.money import micro_from_usd
from frontend.fleet.nodes import pool_panel, source_row
from frontend.fleet.reads import FleetTimes, read_fleet_times
from frontend.shared.access import Viewer, moving, page, show
from frontend.shared.addresses import gateway_url, page_url
from frontend.shared.asked import drawn_csv, figures_json, in_time, marks_of
from frontend.shared.filters import RELATIVE, TimeRange, range_from, segment_from
from frontend.shared.forms import JsonField, changes, cleaned, made_by, says_wrong
from frontend.shared.snippets import enrol_command
from frontend.shared.stepup import secret_page, stepped_up

S_PER_MIN = 60
# As often as gateways tell.
POLL_MS = 2_000
MINUTES_DIGITS_MAX = 9
ACTIONS: dict[str, tuple[Callable[..., bool], str]] = {
    "approve": (services.node_approve, "can serve now"),
    "drain": (services.node_drain, "takes no new jobs from now on"),
    "undrain": (services.node_undrain, "takes jobs again"),
    "forgive": (services.node_forgive, "may reconnect now"),
    "remove": (services.node_remove, "is removed; its credentials are revoked"),
}
DECISIONS = {"approve": True, "refuse": False}
SCHEDULE_CHARS_MAX = 20_000
USD_CHARS_MAX = 20


class TokenForm(forms.Form):
    """A new enrolment token, once for each form; the name only goes into the command to paste."""

    form_id = forms.UUIDField()
    name = forms.CharField(max_length=100)
    approved = forms.BooleanField(required=False)
    life_hours = forms.IntegerField(min_value=1, max_value=services.LIFE_HOURS_MAX, initial=1)

    def __init__(self, data: dict[str, str] | None = None) -> None:
        super().__init__(data)
        pools = [(pool.name, pool.name) for pool in pool_list()]
        self.fields["pool"] = forms.ChoiceField(choices=pools)
        self.fields["models"] = forms.MultipleChoiceField(choices=_models(), required=False)

    def draft(self) -> services.TokenDraft:
        """What a valid form asks for."""
        wanted = self.cleaned_data
        return services.TokenDraft(
            pool=wanted["pool"],
            models=wanted["models"] or None,
            approved=wanted["approved"],
            life_hours=wanted["life_hours"],
            form=wanted["form_id"],
        )


class PoolForm(forms.Form):
    """A pool; the service checks everything again."""

    name = forms.CharField(max_length=50)
    task = forms.ChoiceField(choices=Task.choices)
    role = forms.ChoiceField(choices=PoolRole.choices)
    nodes_min = forms.IntegerField(min_value=0)
    nodes_max = forms.IntegerField(min_value=0)
    warm_schedule = JsonField(max_length=SCHEDULE_CHARS_MAX, required=False)
    card_hour_micro = forms.CharField(max_length=USD_CHARS_MAX, required=False)
    cards_per_node = forms.IntegerField(min_value=1, required=False)
    separate_caches = forms.BooleanField(required=False)
    plan_mode = forms.ChoiceField(choices=PlanMode.choices, required=False)

    def clean_card_hour_micro(self) -> int:
        try:
            return micro_from_usd(self.cleaned_data["card_hour_micro"] or "0")
        except ValueError as error:
            raise ValidationError(f"Must be dollars, as 2.50: {error}.") from error

    def clean_plan_mode(self) -> str:
        return self.cleaned_data["plan_mode"] or PlanMode.ADVICE

    def clean_cards_per_node(self) -> int:
        return self.cleaned_data["cards_per_node"] or 1


def _models() -> list[tuple[str, str]]:
    return [(model.name, model.name) for model in model_list()]


def _now(request: HttpRequest, viewer: Viewer) -> dict[str, object]:
    """Pools and nodes at this moment, and how fresh that is: what the page asks for anew."""
    now, sought = timezone.now(), request.GET.get("node", "").strip()
    panels = [pool_panel(each, sought) for each in signals(actor=viewer.user, now=now)]
    return {
        "viewer": viewer,
        "now": now,
        "panels": panels,
        "sought": sought,
        "hidden_count": sum(panel.hidden for panel in panels),
        "nodes_count": sum(len(panel.rows) for panel in panels),
        "ready_count": sum(panel.signal.load.nodes_ready for panel in panels),
        "limits_alone": limits_alone(now),
        "sources": [source_row(one, now) for one in freshness(actor=viewer.user)],
    }


def _times(request: HttpRequest, viewer: Viewer) -> dict[str, object]:
    now = timezone.now()
    within, complaint = range_from(request.GET, now)
    segment, unread = segment_from(request.GET)
    found = _read_times(within, segment.model, now)
    marks = marks_of(viewer, within)
    return {
        "within": within,
        "ranges": RELATIVE,
        "segment": segment,
        "complaint": " ".join(filter(None, (complaint, unread))),
        "found": found,
        "marks": marks,
        "figures": figures_json(found, marks),
    }


def _read_times(within: TimeRange, model: str, now: datetime) -> FleetTimes | None:
    return in_time(lambda: read_fleet_times(within, model, now))


def _index(
    request: HttpRequest, viewer: Viewer, token: TokenForm, *, command: str = ""
) -> HttpResponse:
    waiting = [row for row in digest_list(user=viewer.user) if row.state == DigestState.WAITING]
    context = _now(request, viewer) | _times(request, viewer)
    context |= {
        "poll_ms": POLL_MS,
        "digests": waiting,
        "token": token,
        "form_id": uuid.uuid4().hex,
        "tokens": token_list(user=viewer.user, now=timezone.now()),
        "command": command,
        "models": _models(),
        "pool_new": Pool(),
        "tasks": Task.choices,
        "roles": PoolRole.choices,
        "plan_modes": PlanMode.choices,
        "drain_minutes": services.DRAIN_S_DEFAULT // S_PER_MIN,
        "drain_minutes_max": services.DRAIN_S_MAX // S_PER_MIN,
    }
    return show(request, viewer, "fleet", "fleet/page.html", context, token.errors)


@page("fleet", Action.FLEET_VIEW, "GET")
def fleet(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """All pools with their nodes; htmx asks for what moves, again and again."""
    part, now = "fleet/parts/now.html", lambda: _now(request, viewer)
    return moving(request, part, now, lambda: _index(request, viewer, TokenForm()))


@page("fleet/<slug:chart>.csv", Action.FLEET_VIEW, "GET")
def fleet_csv(request: HttpRequest, viewer: Viewer, chart: str) -> HttpResponse:
    now = timezone.now()
    within, _ = range_from(request.GET, now)
    return drawn_csv(_read_times(within, segment_from(request.GET)[0].model, now), chart)


@secret_page("fleet/tokens", Action.FLEET_MANAGE, "GET", "POST")
@says_wrong("fleet")
def fleet_token(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Make a token and show the command that uses it, in this one answer."""
    if request.method == "GET":
        return redirect("fleet")
    form = TokenForm(request.POST)
    made = made_by(form, lambda: services.token_create(actor=viewer.user, draft=form.draft()))
    if made is None:
        return _index(request, viewer, form)
    names = {"name": form.cleaned_data["name"], "pool": made.token.pool}
    command = enrol_command(gateway_url(request), page_url(request), token=made.secret, **names)
    return _index(request, viewer, TokenForm(), command=command)


@page("fleet/tokens/<token:token_id>/revoke", Action.FLEET_MANAGE, "POST")
def fleet_token_end(request: HttpRequest, viewer: Viewer, token_id: uuid.UUID) -> HttpResponse:
    row = fleet_get(EnrolmentToken, user=viewer.user, id=token_id)
    if services.token_revoke(actor=viewer.user, token=row):
        messages.success(request, f"Token {row.redacted} can no longer be used.")
    else:
        messages.info(request, f"Token {row.redacted} was already used or expired.")
    return redirect("fleet")


@changes("fleet/pools", Action.FLEET_MANAGE, "fleet")
def fleet_pool(request: HttpRequest, viewer: Viewer) -> str:
    """Make or change a pool; the command of the local driver stays as the operator set it."""
    values = cleaned(PoolForm(request.POST))
    known = pool_find(name=values["name"])
    pool = pool_set(actor=viewer.user, draft=pool_draft(values["name"], values))
    return f"Pool “{pool.name}” is {'changed' if known else 'created'}."


@changes("fleet/nodes/<node:node_id>/<slug:action>", Action.FLEET_MANAGE, "fleet", confirmed=True)
def fleet_node(
    request: HttpRequest, viewer: Viewer, node_id: uuid.UUID, action: str
) -> HttpResponse:
    if action not in ACTIONS:
        raise Http404
    act, words = ACTIONS[action]
    node, more = fleet_get(Node, user=viewer.user, id=node_id), {}
    if action == "drain":
        more["deadline_s"] = _minutes(request.POST.get("minutes", "")) * S_PER_MIN
    if act(actor=viewer.user, node=node, **more):
        messages.success(request, f"Node “{node.name}” {words}. Gateways apply it within 2 s.")
    else:
        messages.info(request, f"No change: node “{node.name}” already has this state.")
    return redirect("fleet")


@changes("fleet/nodes/<node:node_id>/models", Action.FLEET_MANAGE, "fleet", confirmed=True)
def fleet_models(request: HttpRequest, viewer: Viewer, node_id: uuid.UUID) -> str:
    """Replace a node's allow-list; none chosen allows any."""
    node = fleet_get(Node, user=viewer.user, id=node_id)
    services.node_allow(actor=viewer.user, node=node, models=request.POST.getlist("models") or None)
    return f"Node “{node.name}” reconnects with its new list."


@page("fleet/digests/<digest:digest_id>/<slug:decision>", Action.FLEET_MANAGE, "POST")
@stepped_up
def fleet_digest(
    request: HttpRequest, viewer: Viewer, digest_id: uuid.UUID, decision: str
) -> HttpResponse:
    if decision not in DECISIONS:
        raise Http404
    row = fleet_get(ModelDigest, user=viewer.user, id=digest_id)
    services.digest_decide(actor=viewer.user, digest=row, approved=DECISIONS[decision])
    words = "may be served with this digest" if DECISIONS[decision] else "stays without this digest"
    messages.success(request, f"Model “{row.model}” {words}.")
    return redirect("fleet")


def _minutes(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= MINUTES_DIGITS_MAX):
        raise ValidationError({"minutes": "Must be a whole number of minutes."})
    return int(text)
