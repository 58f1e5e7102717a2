"""Operations on objectives, channels, owners of stages and runbooks."""

from __future__ import annotations

from controlplane.core.permissions import Action
from tests.core.route import Route as R

SLOS = "api/slos/organizations/<org:organization_id>"
ONE_OBJECTIVE = f"{SLOS}/objectives/<objective:objective_id>"
ONE_ALERT = f"{SLOS}/alerts/<alert:alert_id>"
ONE_STAGE = "api/slos/stages/<slug:stage>"
DUTY_OWNER = {"team": "us", "begins": "2999-01-01"}
OBJECTIVE = {"name": "made", "indicator": "availability", "target_ppm": 990_000, "team": "us"}
STAGE_OWNER = {"team": "us", "budget_us": 5_000, "runbook": "s1-admission"}

ROUTES: tuple[R, ...] = (
    R("GET", "slos", Action.SLO_VIEW),
    R("GET", "slos.csv", Action.SLO_VIEW),
    R("GET", "slos/openslo", Action.SLO_VIEW),
    R("POST", "slos/openslo", Action.SLO_MANAGE),
    R("POST", "slos/new", Action.SLO_MANAGE),
    R("POST", "slos/channels", Action.SLO_MANAGE),
    R("POST", "slos/channels/<channel:channel_id>", Action.SLO_MANAGE),
    R("GET", "slos/<objective:objective_id>", Action.SLO_VIEW),
    R("GET", "slos/<objective:objective_id>.csv", Action.SLO_VIEW),
    R("POST", "slos/<objective:objective_id>/change", Action.SLO_MANAGE),
    R("POST", "slos/<objective:objective_id>/silence", Action.SLO_HANDLE, {"minutes": 5}),
    R("POST", "slos/alerts/<alert:alert_id>", Action.SLO_HANDLE, {"act": "acknowledge"}),
    R("POST", "slos/channels/<channel:channel_id>/test", Action.SLO_MANAGE),
    R("PUT", f"{ONE_OBJECTIVE}/silence", Action.SLO_HANDLE, {"minutes": 5}),
    R("POST", f"{ONE_ALERT}/acknowledge", Action.SLO_HANDLE),
    R("PUT", f"{ONE_ALERT}/assignee", Action.SLO_HANDLE, {"email": ""}),
    R("GET", f"{SLOS}/deliveries", Action.SLO_MANAGE),
    R("POST", f"{SLOS}/channels/<channel:channel_id>/test", Action.SLO_MANAGE),
    R("PUT", f"{ONE_STAGE}/duties/<slug:duty>", Action.SLO_INSTALLATION, DUTY_OWNER),
    R("GET", "stages", Action.SLO_VIEW),
    R("POST", "stages/<slug:stage>", Action.SLO_INSTALLATION),
    R("POST", "stages/<slug:stage>/duties", Action.SLO_INSTALLATION),
    R("GET", "runbooks", Action.SLO_VIEW),
    R("GET", "runbooks/<slug:slug>", Action.SLO_VIEW),
    R("GET", f"{SLOS}/objectives", Action.SLO_VIEW),
    R("POST", f"{SLOS}/objectives", Action.SLO_MANAGE, OBJECTIVE),
    R("GET", ONE_OBJECTIVE, Action.SLO_VIEW),
    R("PUT", ONE_OBJECTIVE, Action.SLO_MANAGE, OBJECTIVE),
    R("DELETE", ONE_OBJECTIVE, Action.SLO_MANAGE),
    R("GET", f"{SLOS}/alerts", Action.SLO_VIEW),
    R("GET", f"{SLOS}/channels", Action.SLO_MANAGE),
    R("POST", f"{SLOS}/channels", Action.SLO_MANAGE, {"kind": "email", "address": "a@b.org"}),
    R("DELETE", f"{SLOS}/channels/<channel:channel_id>", Action.SLO_MANAGE),
    R("GET", f"{SLOS}/openslo", Action.SLO_VIEW),
    R("POST", f"{SLOS}/openslo", Action.SLO_MANAGE, {"yaml": ""}),
    R("GET", f"{SLOS}/stages", Action.SLO_VIEW),
    R("PUT", "api/slos/stages/<slug:stage>", Action.SLO_INSTALLATION, STAGE_OWNER),
)
