"""Objectives: how each stands, one with its burn-down, changes of them, and who is told."""

import uuid

from django.contrib import messages
from django.core.exceptions import ObjectDoesNotExist
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from controlplane.core.permissions import Action
from controlplane.slos import selectors, services
from controlplane.slos.channels.delivery import signing_secret
from controlplane.slos.channels.messages import ATTEMPTS_MAX
from controlplane.slos.checks import chosen_rules
from controlplane.slos.duties import indicator_owners, owners_of
from controlplane.slos.models import EVERYONE, Alert, Delivery
from controlplane.slos.openslo.documents import openslo_export, openslo_import
from controlplane.slos.runbooks import runbook_path
from controlplane.slos.standings import SHOWN_MIN
from controlplane.tenants.people.selectors import member_list
from frontend.shared.access import Viewer, page, show
from frontend.shared.forms import changes, says_wrong
from frontend.shared.panels import TablePanel, panel_csv
from frontend.shared.plots.marks import marked
from frontend.slos import objectives
from frontend.slos.handling_views import INSTALLATION, SILENCES, asked_of
from frontend.slos.plots import burn_down_figure
from frontend.slos.worst import read_worst

AlertRow = tuple[Alert, str, str, list[tuple[str, str]]]
CHANNEL_KINDS = (
    ("webhook", "webhook, signed"), ("slack", "Slack-compatible"), ("teams", "Microsoft Teams"),
    ("pagerduty", "PagerDuty"), ("opsgenie", "Opsgenie"), ("email", "e-mail"),
)  # fmt: skip
HEAD = [
    *("Objective", "Of", "Promise", "Target", "Attained", "Good", "Counted", "Budget left, %"),
    *(f"Burn rate {objectives.window_words(minutes)}" for minutes in SHOWN_MIN),
    *("Budget lasts, s", "State", "Owner"),
]


@page("slos", Action.SLO_VIEW, "GET", name="slos")
def slo_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Objectives of the organization and, for staff, of the installation."""
    groups = [
        (
            _name(viewer, organization),
            organization == EVERYONE,
            [
                objectives.objective_row(one)
                for one in selectors.objective_standings(
                    actor=viewer.user, organization=organization
                )
            ],
        )
        for organization in _seen(viewer)
    ]
    changes = [(name, everyone) for name, everyone, _ in groups if _changes(viewer, everyone)]
    context = {
        "groups": groups,
        "any": any(rows for _, _, rows in groups),
        "windows": [objectives.window_words(minutes) for minutes in SHOWN_MIN],
        "alerts": _alerts(viewer),
        "channels": _channels(viewer),
        "deliveries": _deliveries(viewer),
        "attempts_max": ATTEMPTS_MAX,
        **_handling(viewer),
        "channel_kinds": CHANNEL_KINDS,
        "changes": changes,
        "may_act": viewer.may(Action.SLO_INSTALLATION),
        "now": timezone.now(),
        **objectives.form_choices(viewer, installation=False),
    }
    return show(request, viewer, "slos", "slos/list.html", context)


@page("slos.csv", Action.SLO_VIEW, "GET")
def slo_csv(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    body = []
    for organization in _seen(viewer):
        for one in selectors.objective_standings(actor=viewer.user, organization=organization):
            row, left = objectives.objective_row(one), one.left
            exact = one.exhausted_in_s
            body.append(
                [
                    row.objective.name,
                    _name(viewer, organization),
                    f"{row.promise}; {row.scope}",
                    row.target,
                    "" if one.attained is None else f"{one.attained:.6f}",
                    str(one.period.good),
                    str(one.period.total),
                    "" if left is None else f"{100 * left:.3f}",
                    *(
                        "" if (rate := one.burn(minutes)) is None else f"{rate:.6g}"
                        for minutes in SHOWN_MIN
                    ),
                    "" if exact is None else f"{exact:.0f}",
                    row.state,
                    row.objective.team,
                ]
            )
    return panel_csv([TablePanel("slos", "Objectives", HEAD, body)], "slos")


@page("slos/<objective:objective_id>", Action.SLO_VIEW, "GET")
def slo(request: HttpRequest, viewer: Viewer, objective_id: uuid.UUID) -> HttpResponse:
    """One objective: its promise, where its budget went, its alerts."""
    organization, found = _find(viewer, objective_id)
    objective, now = found.standing.objective, timezone.now()
    figure = burn_down_figure(found, now)
    context = {
        "row": objectives.objective_row(found.standing),
        "objective": objective,
        "of": _name(viewer, organization),
        "everyone": organization == EVERYONE,
        "figure": figure,
        "figures": {figure.name: marked(figure.as_json(), found.marks)},
        "csv": "slo_burn_csv",
        "marks": found.marks,
        "months": [objectives.month_row(one, objective.target_ppm) for one in found.months],
        "alerts": _alert_rows(found.alerts),
        "silence": selectors.silences(actor=viewer.user, organization=organization).get(
            objective.id
        ),
        "silences": SILENCES,
        "owners": indicator_owners(objective.indicator),
        **_handling(viewer),
        "worst": read_worst(request, viewer, objective, found.alerts),
        "factors": [
            (rule, objectives.RULE_WORDS[rule.name], f"{rule.factor(objective.period_days):.4g}",
             objectives.window_words(rule.long_min), objectives.window_words(rule.short_min))
            for rule in chosen_rules(objective)
        ],
        "runbook": runbook_path(objective.runbook),
        "may_change": _changes(viewer, organization == EVERYONE),
        "threshold": objectives.threshold_text(objective),
        "parts": objectives.parts_text(objective),
        "target": f"{objective.target_ppm / objectives.PPM_PER_PERCENT:g}",
        "bucket": str(objective.prompt_bucket),
        "shed": "" if objective.shed_priority is None else str(objective.shed_priority),
        "may_act": organization == EVERYONE,
        "now": now,
        **objectives.form_choices(viewer, installation=organization == EVERYONE),
        "absent_after_min": objective.absent_after_min,
    }  # fmt: skip
    return show(request, viewer, "slos", "slos/detail.html", context)


@page("slos/<objective:objective_id>.csv", Action.SLO_VIEW, "GET")
def slo_burn_csv(request: HttpRequest, viewer: Viewer, objective_id: uuid.UUID) -> HttpResponse:
    _, found = _find(viewer, objective_id)
    figure = burn_down_figure(found, timezone.now())
    return panel_csv([figure], figure.name)


@changes("slos/new", Action.SLO_VIEW, "slos")
def slo_save(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    organization = asked_of(request, viewer)
    _may_change(viewer, organization)
    made = services.objective_create(
        actor=viewer.user,
        organization=organization,
        draft=objectives.draft_from(request.POST.dict(), request.POST.getlist("rules") or None),
    )
    messages.success(request, "Gateways count for it within two seconds.")
    return redirect("slo", made.id)


@changes("slos/<objective:objective_id>/change", Action.SLO_VIEW, "slo", "objective_id")
def slo_change(request: HttpRequest, viewer: Viewer, objective_id: uuid.UUID) -> HttpResponse | str:
    organization, found = _find(viewer, objective_id)
    objective = found.standing.objective
    _may_change(viewer, organization)
    if request.POST.get("end") == "1":
        services.objective_end(actor=viewer.user, objective=objective)
        messages.success(request, f"{objective.name} has ended.")
        return redirect("slos")
    draft = objectives.draft_from(
        {**request.POST.dict(), "indicator": objective.indicator},
        request.POST.getlist("rules") or None,
    )
    now = services.objective_update(actor=viewer.user, objective=objective, draft=draft)
    fresh = now.version != objective.version
    told = f"Version {now.version} starts with new counts." if fresh else "Changes saved."
    return told


@changes("slos/channels", Action.SLO_VIEW, "slos", confirmed=True)
def slo_channel_add(request: HttpRequest, viewer: Viewer) -> HttpResponse | str:
    """Tell one more address; a webhook's secret is shown on the next page, and only there."""
    organization = asked_of(request, viewer)
    _may_change(viewer, organization)
    kind = request.POST.get("kind", "")
    made = services.channel_add(
        actor=viewer.user,
        organization=organization,
        kind=kind,
        address=request.POST.get("address", "").strip(),
    )
    if kind != "webhook":
        return "The channel receives every alert from now on."
    context = {"viewer": viewer, "here": "slos", "secret": signing_secret(made.id)}
    answer = render(request, "slos/secret.html", {**context, "channel": made})
    answer["Cache-Control"] = "no-store"
    return answer


@page("slos/channels/<channel:channel_id>", Action.SLO_VIEW, "POST")
def slo_channel_remove(request: HttpRequest, viewer: Viewer, channel_id: uuid.UUID) -> HttpResponse:
    organization = asked_of(request, viewer)
    services.channel_remove(actor=viewer.user, organization=organization, channel_id=channel_id)
    messages.success(request, "The channel no longer receives alerts.")
    return redirect("slos")


@page("slos/openslo", Action.SLO_VIEW, "GET", "POST")
@says_wrong("slos")
def slo_openslo(request: HttpRequest, viewer: Viewer) -> HttpResponse | str:
    if request.method == "GET":
        organization = EVERYONE if request.GET.get("of") == INSTALLATION else viewer.organization.id
        text = openslo_export(actor=viewer.user, organization=organization)
        answer = HttpResponse(text, content_type="application/yaml; charset=utf-8")
        answer["Content-Disposition"] = 'attachment; filename="sluice-slos.yaml"'
        return answer
    organization = asked_of(request, viewer)
    _may_change(viewer, organization)
    done = openslo_import(
        actor=viewer.user, organization=organization, text=request.POST.get("yaml", "")
    )
    return f"{done.made} created, {done.updated} updated."


def _seen(viewer: Viewer) -> list[uuid.UUID]:
    """Organizations whose objectives are shown; the zero id is the installation's."""
    everyone = [EVERYONE] if viewer.may(Action.SLO_INSTALLATION) else []
    return [viewer.organization.id, *everyone]


def _name(viewer: Viewer, organization: uuid.UUID) -> str:
    return "Installation" if organization == EVERYONE else viewer.organization.name


def _changes(viewer: Viewer, everyone: bool) -> bool:
    return viewer.may(Action.SLO_INSTALLATION if everyone else Action.SLO_MANAGE)


def _may_change(viewer: Viewer, organization: uuid.UUID) -> None:
    """Say no before a form is read; raises PermissionDenied."""
    with services.changing(viewer.user, organization):
        return


def _find(viewer: Viewer, objective_id: uuid.UUID) -> tuple[uuid.UUID, selectors.BurnDown]:
    for organization in _seen(viewer):
        try:
            return organization, selectors.burn_down(
                actor=viewer.user, organization=organization, objective_id=objective_id
            )
        except ObjectDoesNotExist:
            continue
    raise Http404


def _alerts(viewer: Viewer) -> list[AlertRow]:
    found = [
        alert
        for organization in _seen(viewer)
        for alert in selectors.alert_list(actor=viewer.user, organization=organization)
    ]
    found.sort(key=lambda alert: alert.created_at, reverse=True)
    return _alert_rows(found)


def _alert_rows(alerts: list[Alert]) -> list[AlertRow]:
    """Each with its rule, how long it lasted, and who answers for the stage that it is of."""
    owners = owners_of({alert.objective.indicator for alert in alerts})
    return [
        (
            one,
            objectives.RULE_WORDS.get(one.rule, one.rule),
            objectives.lasted(one),
            owners[one.objective.indicator],
        )
        for one in alerts
    ]


def _handling(viewer: Viewer) -> dict[str, object]:
    """Whose alerts the viewer may handle, and to whom they may give them."""
    organization = viewer.organization
    gives = viewer.may(Action.MEMBER_VIEW)
    members = member_list(actor=viewer.user, organization_id=organization.id) if gives else []
    return {
        "handles": viewer.may(Action.SLO_HANDLE),
        "handles_all": viewer.may(Action.SLO_INSTALLATION),
        "assignees": [one.membership.user.email for one in members],
        "everyone_id": EVERYONE,
    }


def _deliveries(viewer: Viewer) -> list[Delivery]:
    found = [
        delivery
        for organization in _seen(viewer)
        if _changes(viewer, organization == EVERYONE)
        for delivery in selectors.delivery_list(actor=viewer.user, organization=organization)
    ]
    found.sort(key=lambda one: one.created_at, reverse=True)
    return found[: selectors.DELIVERIES_SHOWN_MAX]


def _channels(viewer: Viewer) -> list[tuple[object, str, bool]]:
    return [
        (channel, _name(viewer, organization), organization == EVERYONE)
        for organization in _seen(viewer)
        if _changes(viewer, organization == EVERYONE)
        for channel in selectors.channel_list(actor=viewer.user, organization=organization)
    ]
