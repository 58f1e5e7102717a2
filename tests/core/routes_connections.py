"""Operations on the catalogue and on connections to hosted providers, for staff."""

from __future__ import annotations

from controlplane.core.permissions import Action
from tests.core.route import Route as R

ONE_CONNECTION = "connections/<connection:connection_id>"
CONNECTION = {"name": "made", "kind": "openai", "url": "https://api.openai.com/v1"}

MODEL = "api/catalog/models/<path:model>"
SIZES = {"pool": "default", "context_window": 4_096}
ALIAS = {"alias": "further"}

ROUTES: tuple[R, ...] = (
    R("GET", "api/catalog/models", Action.CATALOG_MANAGE),
    R("POST", "api/catalog/models", Action.CATALOG_MANAGE, {"name": "made", **SIZES}),
    R("PUT", f"{MODEL}/definition", Action.CATALOG_MANAGE, SIZES),
    R("PUT", f"{MODEL}/enabled", Action.CATALOG_MANAGE, {"enabled": True}),
    R("POST", f"{MODEL}/remove", Action.CATALOG_MANAGE),
    R("GET", f"{MODEL}/aliases", Action.CATALOG_MANAGE),
    R("POST", f"{MODEL}/aliases", Action.CATALOG_MANAGE, ALIAS),
    R("POST", f"{MODEL}/aliases/end", Action.CATALOG_MANAGE, ALIAS),
    R("GET", "connections", Action.CATALOG_MANAGE),
    R("POST", "connections/add", Action.CATALOG_MANAGE),
    R("GET", ONE_CONNECTION, Action.CATALOG_MANAGE),
    R("POST", f"{ONE_CONNECTION}/act", Action.CATALOG_MANAGE, body={"act": "switch"}),
    R("GET", "api/connections", Action.CATALOG_MANAGE),
    R("POST", "api/connections", Action.CATALOG_MANAGE, CONNECTION),
    R("GET", f"api/{ONE_CONNECTION}", Action.CATALOG_MANAGE),
    R("PUT", f"api/{ONE_CONNECTION}", Action.CATALOG_MANAGE, CONNECTION),
    R("DELETE", f"api/{ONE_CONNECTION}", Action.CATALOG_MANAGE),
    R("PUT", f"api/{ONE_CONNECTION}/enabled", Action.CATALOG_MANAGE, {"enabled": True}),
    R("PUT", f"api/{ONE_CONNECTION}/models", Action.CATALOG_MANAGE, {"models": []}),
    R("GET", f"api/{ONE_CONNECTION}/spend", Action.CATALOG_MANAGE),
    R("PUT", f"api/{ONE_CONNECTION}/amounts", Action.CATALOG_MANAGE, {"amounts": []}),
    R("POST", f"api/{ONE_CONNECTION}/test", Action.CATALOG_MANAGE),
    R("POST", f"api/{ONE_CONNECTION}/keys", Action.CATALOG_MANAGE, {"secret": "sk-another"}),
    R(
        "DELETE",
        f"api/{ONE_CONNECTION}/keys/<connectionkey:key_id>",
        Action.CATALOG_MANAGE,
    ),
)
