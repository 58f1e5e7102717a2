"""Lines of the authorization matrix about changes; `routes.py` says what they mean."""

from __future__ import annotations

from typing import Any

from controlplane.core.permissions import Action
from tests.core.route import Route

R = Route
LIMITS = "api/organizations/<org:organization_id>/limits/changes"
PRICES = "api/catalog/prices/changes"
NOTHING_SAID: dict[str, Any] = {"content": {}}

ROUTES: tuple[Route, ...] = tuple(
    route
    for needs, page, api in (
        (Action.LIMIT_SET, "limits/changes", LIMITS),
        (Action.CATALOG_MANAGE, "catalog/changes", PRICES),
    )
    for route in (
        R("GET", page, needs),
        R("POST", f"{page}/draft", needs),
        R("POST", f"{page}/rollback", needs),
        R("GET", f"{page}/<int:version>", needs),
        R("GET", f"{page}/<int:version>/dry-run", needs),
        R("POST", f"{page}/<int:version>/publish", needs),
        R("POST", f"{page}/<int:version>/<slug:step>", needs),
        R("GET", api, needs),
        R("POST", api, needs, NOTHING_SAID),
        R("POST", f"{api}/rollback", needs, {"version": 1}),
        R("GET", f"{api}/<int:version>", needs),
        R("PUT", f"{api}/<int:version>", needs, {**NOTHING_SAID, "revision": 1}),
        R("DELETE", f"{api}/<int:version>", needs),
        R("POST", f"{api}/<int:version>/dry-run", needs),
        R("POST", f"{api}/<int:version>/publish", needs, {"revision": 1}),
    )
) + (
    R("GET", f"{LIMITS}/shadow", Action.LIMIT_SET),
    R("POST", f"{LIMITS}/<int:version>/shadow", Action.LIMIT_SET, {"revision": 1}),
    R("POST", f"{LIMITS}/<int:version>/stop", Action.LIMIT_SET),
    R("POST", "limits/draft", Action.LIMIT_SET),
    R("POST", "budgets/draft", Action.LIMIT_SET),
)
