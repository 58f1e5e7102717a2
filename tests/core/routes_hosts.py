"""Operations on hosts and deployments."""

from __future__ import annotations

from controlplane.core.permissions import Action
from tests.core.callers import ALL
from tests.core.route import PUBLIC
from tests.core.route import Route as R

# A host's own credential opens this, and nobody's else.
NO_HOST = dict.fromkeys(ALL, 401)
DEPLOYMENT = {
    "name": "made",
    "model": "tiny",
    "source_kind": "folder",
    "source_name": "/models/tiny",
}

ROUTES: tuple[R, ...] = (
    R("GET", "deployments", Action.FLEET_VIEW),
    R("POST", "deployments/hosts", Action.FLEET_MANAGE),
    R("GET", "deployments/hosts", Action.FLEET_MANAGE),
    R("POST", "deployments/hosts/<slug:name>/remove", Action.FLEET_MANAGE),
    R("POST", "deployments/new", Action.FLEET_MANAGE),
    R("POST", "deployments/<slug:name>/change", Action.FLEET_MANAGE),
    R("POST", "deployments/<slug:name>/remove", Action.FLEET_MANAGE),
    R("GET", "api/hosts", Action.FLEET_VIEW),
    R("POST", "api/hosts", Action.FLEET_MANAGE, {"name": "made"}),
    R("DELETE", "api/hosts/<str:name>", Action.FLEET_MANAGE),
    R("GET", "api/deployments", Action.FLEET_VIEW),
    R("POST", "api/deployments", Action.FLEET_MANAGE, DEPLOYMENT),
    R("GET", "api/deployments/<str:name>", Action.FLEET_VIEW),
    R("PATCH", "api/deployments/<str:name>", Action.FLEET_MANAGE, {"replicas": 2}),
    R("DELETE", "api/deployments/<str:name>", Action.FLEET_MANAGE),
    R("POST", "api/agent/enrol", PUBLIC),
    R("POST", "api/agent/report", PUBLIC, but=NO_HOST),
)
