"""Which operations ask a session to confirm its owner first: every change is in one of two lists.

`CONFIRMED` decides over money, over secrets, or over who gets to see prompts; `FREE` does not.
"""

from __future__ import annotations

from tests.core.route import PUBLIC, Route

ORGANIZATION = "/api/organizations/<org:organization_id>"
BILLING = "/api/billing/organizations/<org:organization_id>"
SLOS = "/api/slos/organizations/<org:organization_id>"
RULES = "/api/routing/versions/<int:version>"
TEMPLATE = "/api/catalog/templates/<org:organization>/<str:name>"
TEMPLATE_VERSION = f"{TEMPLATE}/versions/<int:version>"
CONNECTION = "connections/<connection:connection_id>"
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")

CONFIRMED = frozenset(
    {
        # Ways into accounts, organizations and keys
        "POST /account/app",
        "POST /account/passkeys/new",
        "POST /account/passkeys",
        "POST /account/codes",
        "POST /account/factors/<factor:factor_id>",
        "POST /organizations/new",
        "POST /organizations/<org:organization_id>/links/<user:user_id>",
        "POST /api/organizations",
        "POST /members/second-factor",
        "POST /members/invite",
        "POST /members/<user:user_id>/role",
        "POST /members/<user:user_id>/remove",
        "POST /members/<user:user_id>/link",
        "POST /keys/create",
        "POST /keys/<key:apikey_id>/rotate",
        "POST /admin-keys/create",
        f"PUT {ORGANIZATION}/members/<user:user_id>",
        f"DELETE {ORGANIZATION}/members/<user:user_id>",
        f"POST {ORGANIZATION}/members/<user:user_id>/password-link",
        f"PUT {ORGANIZATION}/security",
        f"POST {ORGANIZATION}/invitations",
        f"POST {ORGANIZATION}/keys",
        f"POST {ORGANIZATION}/keys/<key:inference_key>/rotate",
        f"POST {ORGANIZATION}/admin-keys",
        # Secrets that are shown, and whether prompts are kept
        "POST /slos/channels",
        f"POST {SLOS}/channels",
        "POST /projects/<proj:project_id>",
        f"PATCH {ORGANIZATION}/projects/<proj:project_id>",
        "POST /projects/<proj:project_id>/keeping",
        f"PUT {ORGANIZATION}/projects/<proj:project_id>/keeping",
        # Which nodes and models get prompts
        "POST /fleet/tokens",
        "POST /fleet/nodes/<node:node_id>/models",
        "POST /fleet/nodes/<node:node_id>/<slug:action>",
        "POST /fleet/digests/<digest:digest_id>/<slug:decision>",
        "POST /api/fleet/tokens",
        "PUT /api/fleet/nodes/<path:name>/models",
        "POST /api/fleet/nodes/<path:name>/approve",
        "POST /api/fleet/nodes/<path:name>/drain",
        "POST /api/fleet/nodes/<path:name>/undrain",
        "POST /api/fleet/nodes/<path:name>/remove",
        "POST /api/fleet/nodes/<path:name>/forgive",
        "POST /api/fleet/digests/<digest:digest_id>/approve",
        "POST /api/fleet/digests/<digest:digest_id>/refuse",
        "POST /routing/<int:version>/publish",
        "POST /routing/<int:version>/canary",
        "POST /routing/<int:version>/promote",
        "POST /routing/rollback",
        f"POST {RULES}/publish",
        f"POST {RULES}/canary",
        f"POST {RULES}/promote",
        "POST /api/routing/rollback",
        "POST /configuration/apply",
        "POST /api/blueprint/apply",
        # Money
        "POST /invoices/issue",
        "POST /invoices/profile",
        "POST /invoices/<inv:invoice_id>/credit",
        "POST /invoices/<inv:invoice_id>/paid",
        "POST /grants/new",
        "POST /grants/<org:organization_id>/<grant:grant_id>/<slug:decision>",
        "POST /catalog/add",
        "POST /catalog/act/<path:name>",
        "POST /connections/add",
        f"POST /{CONNECTION}/act",
        "POST /api/connections",
        f"PUT /api/{CONNECTION}",
        f"DELETE /api/{CONNECTION}",
        f"PUT /api/{CONNECTION}/enabled",
        f"PUT /api/{CONNECTION}/models",
        f"PUT /api/{CONNECTION}/amounts",
        f"POST /api/{CONNECTION}/keys",
        f"DELETE /api/{CONNECTION}/keys/<connectionkey:key_id>",
        "POST /ledger/close",
        "POST /budgets/save",
        "POST /budgets/stop",
        f"POST {BILLING}/invoices",
        f"POST {BILLING}/invoices/<inv:invoice_id>/credit-notes",
        f"POST {BILLING}/invoices/<inv:invoice_id>/payments",
        f"PUT {BILLING}/billing-profile",
        f"POST {BILLING}/grants",
        f"POST {BILLING}/grants/<grant:grant_id>/approve",
        f"POST {BILLING}/grants/<grant:grant_id>/refuse",
        "POST /api/catalog/models/<path:model>/prices",
        "POST /api/catalog/models/<path:model>/prices/end",
        "POST /api/catalog/models/<path:model>/purchases",
        f"POST {BILLING}/requests/<req:charge_id>/reversals",
        f"POST {BILLING}/periods/<str:period>/close",
        f"PUT {BILLING}/budgets/<id:subject_id>",
        f"DELETE {BILLING}/budgets/<id:subject_id>",
    }
)
FREE = frozenset(
    {
        # They confirm by themselves, or end what was open
        "POST /confirm",
        "POST /sign-in/passkey",
        "POST /account/password",
        "POST /account/sessions/others",
        "POST /account/sessions/<session:session_id>",
        "POST /invitations/<invite:invitation_id>",
        f"DELETE {ORGANIZATION}/invitations/<invite:invitation_id>",
        "POST /keys/<key:apikey_id>/revoke",
        f"POST {ORGANIZATION}/keys/<key:inference_key>/revoke",
        "POST /admin-keys/<adminkey:key_id>/revoke",
        f"DELETE {ORGANIZATION}/admin-keys/<adminkey:key_id>",
        "POST /fleet/tokens/<token:token_id>/revoke",
        "DELETE /api/fleet/tokens/<token:token_id>",
        "POST /slos/channels/<channel:channel_id>",
        f"DELETE {SLOS}/channels/<channel:channel_id>",
        "POST /routing/<int:version>/stop",
        f"POST {RULES}/stop",
        # Limits, shares and settings that open nothing
        "POST /organization",
        "POST /projects/add",
        f"POST {ORGANIZATION}/projects",
        "POST /shares/<org:organization_id>/<proj:project_id>",
        f"PUT {ORGANIZATION}/projects/<proj:project_id>/weight",
        "POST /limits/set",
        "POST /batches/<batch:batch_id>/cancel",
        f"PUT {ORGANIZATION}/limits",
        f"PUT {ORGANIZATION}/projects/<proj:project_id>/limits",
        f"PUT {ORGANIZATION}/keys/<key:inference_key>/limits",
        "POST /fleet/pools",
        "PUT /api/fleet/pools/<str:name>",
        "POST /slos/openslo",
        "POST /slos/new",
        "POST /slos/<objective:objective_id>/change",
        "POST /stages/<slug:stage>",
        f"POST {SLOS}/objectives",
        f"PUT {SLOS}/objectives/<objective:objective_id>",
        f"DELETE {SLOS}/objectives/<objective:objective_id>",
        f"POST {SLOS}/openslo",
        "PUT /api/slos/stages/<slug:stage>",
        # What was said, to those who may: each leaves its row in the audit log
        "POST /conversations/<proj:project_id>/<req:request_id>",
        "POST /conversations/<proj:project_id>/<req:request_id>/delete",
        "POST /conversations/<proj:project_id>/forget",
        f"DELETE {ORGANIZATION}/projects/<proj:project_id>/contents",
        f"DELETE {ORGANIZATION}/projects/<proj:project_id>/contents/<req:request_id>",
        "POST /playground",
        # One's own money and figures
        "POST /playground/token",
        "POST /wallet/pay",
        "POST /invoices/<inv:invoice_id>/pay",
        f"POST {BILLING}/payment-orders",
        "POST /exports",
        f"POST {BILLING}/exports",
        # Drafts, checks and a tenant's own texts
        "POST /routing/draft",
        "POST /routing/<int:version>/save",
        "POST /routing/<int:version>/discard",
        "POST /api/routing/versions",
        f"PUT {RULES}",
        f"DELETE {RULES}",
        f"POST {RULES}/validate",
        f"POST {RULES}/dry-run",
        "POST /configuration/compare",
        "POST /api/blueprint/validate",
        "POST /api/blueprint/diff",
        "POST /templates/new",
        "POST /templates/<str:name>/<int:version>/try",
        "POST /templates/<str:name>/<int:version>/<slug:action>",
        f"POST /api/{CONNECTION}/test",
        "POST /api/catalog/templates/<org:organization>",
        f"POST {TEMPLATE}/versions",
        f"POST {TEMPLATE}/rollback",
        f"PUT {TEMPLATE_VERSION}",
        f"DELETE {TEMPLATE_VERSION}",
        f"POST {TEMPLATE_VERSION}/dry-run",
        f"POST {TEMPLATE_VERSION}/publish",
        f"POST {TEMPLATE_VERSION}/canary",
        f"POST {TEMPLATE_VERSION}/stop",
    }
)


def is_change(route: Route) -> bool:
    """Whether a signed-in session changes something by it."""
    return route.method in UNSAFE and route.needs is not PUBLIC
