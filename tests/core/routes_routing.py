"""Lines of the authorization matrix about routing rules; `routes.py` says what they mean."""

from __future__ import annotations

from controlplane.core.permissions import Action
from tests.core.route import Route

R = Route
RULES = {"rules": [], "note": ""}

ROUTES: tuple[Route, ...] = (
    # Pages
    R("GET", "routing", Action.ROUTING_MANAGE),
    R("POST", "routing/draft", Action.ROUTING_MANAGE),
    R("POST", "routing/rollback", Action.ROUTING_MANAGE, {"version": "{version}"}),
    R("GET", "routing/<int:version>", Action.ROUTING_MANAGE),
    R("GET", "routing/<int:version>/dry-run", Action.ROUTING_MANAGE),
    R("POST", "routing/<int:version>/edit", Action.ROUTING_MANAGE),
    R("POST", "routing/<int:version>/save", Action.ROUTING_MANAGE),
    R("POST", "routing/<int:version>/publish", Action.ROUTING_MANAGE),
    R("POST", "routing/<int:version>/canary", Action.ROUTING_MANAGE),
    R("POST", "routing/<int:version>/promote", Action.ROUTING_MANAGE),
    R("POST", "routing/<int:version>/stop", Action.ROUTING_MANAGE),
    R("POST", "routing/<int:version>/discard", Action.ROUTING_MANAGE),
    # API
    R("GET", "api/routing/versions", Action.ROUTING_MANAGE),
    R("POST", "api/routing/versions", Action.ROUTING_MANAGE, RULES),
    R("GET", "api/routing/versions/<int:version>", Action.ROUTING_MANAGE),
    R("PUT", "api/routing/versions/<int:version>", Action.ROUTING_MANAGE),
    R("DELETE", "api/routing/versions/<int:version>", Action.ROUTING_MANAGE),
    R("POST", "api/routing/versions/<int:version>/validate", Action.ROUTING_MANAGE),
    R("POST", "api/routing/versions/<int:version>/dry-run", Action.ROUTING_MANAGE),
    R("POST", "api/routing/versions/<int:version>/publish", Action.ROUTING_MANAGE),
    R("POST", "api/routing/versions/<int:version>/canary", Action.ROUTING_MANAGE),
    R("POST", "api/routing/versions/<int:version>/promote", Action.ROUTING_MANAGE),
    R("POST", "api/routing/versions/<int:version>/stop", Action.ROUTING_MANAGE),
    R("GET", "api/routing/canary", Action.ROUTING_MANAGE),
    R("GET", "api/routing/sizes", Action.ROUTING_MANAGE),
    R("POST", "api/routing/rollback", Action.ROUTING_MANAGE),
)
