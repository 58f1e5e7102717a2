"""The authorization matrix: one line for each operation of every route, and what it requires.

`test_authorization_matrix.py` walks the URL conf, the gateway's paths and the sockets, and calls
each operation as each caller of `callers.py`. A route, a method or a parameter that is not declared
here fails it, and so does a line that fits no route. To add yours:

1. a line `R(method, path, needs)`. `path` is as in the URL conf, includes joined
   (`api/fleet/tokens/<token:token_id>`). `needs` is the `Action` it requires, or one of `PUBLIC`,
   `SIGNED_IN`, `METRICS`, or a set of callers' names;
2. each parameter's name in `tests/core/samples.py`, with a value that exists in the organization
   under test. Values of a tenant are marked so: another tenant's owner must get 404 for them.

What follows from `needs`: callers who may get an answer that is no 401, 403, 404, 405 or 5xx; a
member whose role does not allow it 403; another tenant's owner 404 where the path names a tenant's
thing, and else an answer about their own; everybody else 401 from the API and a way to sign in from
pages. Methods without a line are answered 405. The rest of a line is what it needs beside: `body`,
sent as JSON or as a form, may name samples in braces (`{"project": "{project}"}`), `query`, `but`.
"""

from __future__ import annotations

from controlplane.core.permissions import Action
from tests.core.callers import (
    ADMIN_KEY,
    ALL,
    ANONYMOUS,
    OPERATOR,
    OTHER_OWNER,
    SESSIONS,
    STAFF,
    TOKENS,
)
from tests.core.route import METRICS, PUBLIC, SIGNED_IN, Route
from tests.core.routes_changes import ROUTES as CHANGE_ROUTES
from tests.core.routes_connections import ROUTES as CONNECTION_ROUTES
from tests.core.routes_contents import ROUTES as CONTENT_ROUTES
from tests.core.routes_hosts import ROUTES as HOST_ROUTES
from tests.core.routes_routing import ROUTES as ROUTING_ROUTES
from tests.core.routes_slos import ROUTES as SLO_ROUTES

R = Route
BILLING = "api/billing/organizations/<org:organization_id>"
SEES = {STAFF: 200}
NOT_ADMINS = dict.fromkeys(("developer", "finance", "viewer", STAFF), 403)
NOT_STAFF = {OTHER_OWNER: 403}
GRANT_PAGE = "grants/<org:organization_id>/<grant:grant_id>/<slug:decision>"
INSIGHTS = "api/insights/organizations/<org:organization_id>"
OF_ORGANIZATION = "api/organizations/<org:organization_id>"
ADMIN_KEYS = f"{OF_ORGANIZATION}/admin-keys"
KEYS = f"{OF_ORGANIZATION}/keys"
ONE_KEY = f"{KEYS}/<key:inference_key>"
OWN_PROJECT = "v1/organization/projects/<proj:project_id>"
ONE_MEMBER = f"{OF_ORGANIZATION}/members/<user:user_id>"
ONE_INVITATION = f"{OF_ORGANIZATION}/invitations/<invite:invitation_id>"
ONE_PROJECT = f"{OF_ORGANIZATION}/projects/<proj:project_id>"
INVITATION = {"email": "new@example.org", "role": "viewer"}
NEW_ORGANIZATION = {"name": "made", "owner": "new@example.org"}
OWNER_LINK = "organizations/<org:organization_id>/links/<user:user_id>"
NOTHING_OWN = dict.fromkeys(SESSIONS, 404)
UNKNOWN = dict.fromkeys((*TOKENS, ANONYMOUS), 404)
NO_PROVIDER = dict.fromkeys(ALL, 404)
SHARE_PAGE = "shares/<org:organization_id>/<proj:project_id>"
PROMPT = "api/catalog/templates/<org:organization>/<str:name>"
PROMPT_VERSION = f"{PROMPT}/versions/<int:version>"
PROMPT_ACT = "templates/<str:name>/<int:version>/<slug:action>"
TRIAL = {"project": "{project}", "tokens": "9", "count": "1"}
PROMPT_BODY = {"messages": [{"role": "user", "content": "x"}]}

ROUTES: tuple[Route, ...] = (
    # Pages: people
    R("GET", "sign-in", PUBLIC),
    R("POST", "sign-in", PUBLIC),
    R("POST", "sign-out", PUBLIC),
    R("GET", "setup/<str:token>", PUBLIC),
    R("POST", "setup/<str:token>", PUBLIC),
    R("POST", "organization", SIGNED_IN, {"organization": "{organization}"}),
    # No mail is sent here.
    R("GET", "sign-in/forgot", PUBLIC, but=NO_PROVIDER),
    R("POST", "sign-in/forgot", PUBLIC, but=NO_PROVIDER),
    R("GET", "sign-in/second", PUBLIC),
    R("POST", "sign-in/second", PUBLIC),
    # Who confirms is signed in, who signs in has shown a password: all others are nobody's.
    R("POST", "sign-in/passkey", SIGNED_IN, but=UNKNOWN),
    # There is no identity provider here.
    R("GET", "sign-in/provider/<slug:provider_id>", PUBLIC, but=NO_PROVIDER),
    R("GET", "sign-in/provider/<slug:provider_id>/done", PUBLIC, but=NO_PROVIDER),
    R("GET", "invitation/<str:token>", PUBLIC),
    R("POST", "invitation/<str:token>", PUBLIC),
    R("GET", "confirm", SIGNED_IN),
    R("POST", "confirm", SIGNED_IN),
    R("GET", "confirm/form", SIGNED_IN),
    R("GET", "account", SIGNED_IN),
    R("POST", "account/password", SIGNED_IN),
    R("POST", "account/sessions/others", SIGNED_IN),
    R("POST", "account/sessions/<session:session_id>", SIGNED_IN, but=NOTHING_OWN),
    R("GET", "account/app", SIGNED_IN),
    R("POST", "account/app", SIGNED_IN),
    R("POST", "account/passkeys/new", SIGNED_IN),
    R("POST", "account/passkeys", SIGNED_IN),
    # Nobody here has a second factor, of which these are.
    R("POST", "account/codes", SIGNED_IN, but=NOTHING_OWN),
    R("POST", "account/factors/<factor:factor_id>", SIGNED_IN, but=NOTHING_OWN),
    R("GET", "organizations", Action.ORGANIZATION_CREATE),
    R("POST", "organizations/new", Action.ORGANIZATION_CREATE),
    R("POST", OWNER_LINK, Action.USER_CREATE, but=NOT_STAFF),
    R("GET", "api/organizations", Action.ORGANIZATION_CREATE),
    R("POST", "api/organizations", Action.ORGANIZATION_CREATE, NEW_ORGANIZATION),
    R("GET", "members", Action.MEMBER_VIEW),
    R("POST", "members/second-factor", Action.SECURITY_SET),
    R("GET", "members/invite", Action.MEMBER_MANAGE),
    R("POST", "members/invite", Action.MEMBER_MANAGE),
    R("POST", "members/<user:user_id>/role", Action.MEMBER_MANAGE, {"role": "viewer"}),
    R("POST", "members/<user:user_id>/remove", Action.MEMBER_MANAGE),
    R("POST", "members/<user:user_id>/link", Action.MEMBER_RECOVER),
    # Staff of the installation make one for everybody.
    R("POST", f"{ONE_MEMBER}/password-link", Action.MEMBER_RECOVER, but={STAFF: 201}),
    R("POST", "invitations/<invite:invitation_id>", Action.MEMBER_MANAGE),
    R("GET", "projects", Action.ORGANIZATION_VIEW),
    R("POST", "projects/add", Action.PROJECT_CREATE),
    R("POST", "projects/<proj:project_id>", Action.PROJECT_UPDATE),
    R("POST", "projects/<proj:project_id>/policies", Action.PROJECT_UPDATE),
    R("GET", "shares", Action.ROUTING_MANAGE),
    R("POST", SHARE_PAGE, Action.ROUTING_MANAGE, {"weight": "2"}, but=NOT_STAFF),
    R("GET", f"{OF_ORGANIZATION}/members", Action.MEMBER_VIEW),
    R("PUT", ONE_MEMBER, Action.MEMBER_MANAGE, {"role": "viewer"}),
    R("DELETE", ONE_MEMBER, Action.MEMBER_MANAGE),
    R("GET", f"{OF_ORGANIZATION}/security", Action.ORGANIZATION_VIEW),
    R("PUT", f"{OF_ORGANIZATION}/security", Action.SECURITY_SET, {"second_factor_required": False}),
    R("GET", f"{OF_ORGANIZATION}/invitations", Action.MEMBER_VIEW),
    R("POST", f"{OF_ORGANIZATION}/invitations", Action.MEMBER_MANAGE, INVITATION),
    R("DELETE", ONE_INVITATION, Action.MEMBER_MANAGE),
    R("GET", f"{OF_ORGANIZATION}/projects", Action.ORGANIZATION_VIEW),
    R("POST", f"{OF_ORGANIZATION}/projects", Action.PROJECT_CREATE, {"name": "made"}),
    R("GET", ONE_PROJECT, Action.ORGANIZATION_VIEW),
    R("PATCH", ONE_PROJECT, Action.PROJECT_UPDATE, {"name": "renamed"}),
    R("PUT", f"{ONE_PROJECT}/weight", Action.ROUTING_MANAGE, {"weight": 2}, but=NOT_STAFF),
    *CHANGE_ROUTES,
    *CONNECTION_ROUTES,
    *CONTENT_ROUTES,
    *HOST_ROUTES,
    *ROUTING_ROUTES,
    *SLO_ROUTES,
    # Pages: overview, requests, playground
    R("GET", "", Action.ORGANIZATION_VIEW),
    R("GET", "overview/<slug:chart>.csv", Action.ORGANIZATION_VIEW),
    R("GET", "latency", Action.ORGANIZATION_VIEW),
    R("GET", "latency/<slug:chart>.csv", Action.ORGANIZATION_VIEW),
    R("GET", "cache", Action.ORGANIZATION_VIEW),
    R("GET", "cache/<slug:chart>.csv", Action.ORGANIZATION_VIEW),
    R("GET", "explore", Action.REQUEST_VIEW),
    R("GET", "explore/<slug:chart>.csv", Action.REQUEST_VIEW),
    R("POST", "explore/views", Action.REQUEST_VIEW, {"name": "slow"}),
    # A shared one is its owner's, or an admin's.
    R("POST", "explore/views/<view:view_id>/remove", Action.REQUEST_VIEW, but=NOT_ADMINS),
    R("GET", "requests", Action.REQUEST_VIEW),
    R("GET", "requests.csv", Action.REQUEST_VIEW),
    R("GET", "requests/exemplar", Action.REQUEST_VIEW, query="measure=total&value=20000"),
    R("GET", "requests/<req:request_id>", Action.REQUEST_VIEW),
    R("GET", "find", SIGNED_IN, query="q=keys"),
    R("GET", "playground", Action.PLAYGROUND_USE),
    R("POST", "playground/token", Action.PLAYGROUND_USE, {"project": "{project}"}),
    # Asked for until the cost is known: of a request that is not theirs strangers never learn it.
    R("GET", "playground/cost/<req:request_id>", Action.PLAYGROUND_USE, but={OTHER_OWNER: 200}),
    # Pages: keys
    R("GET", f"{OF_ORGANIZATION}/models", Action.CATALOG_VIEW),
    R("GET", "keys", Action.KEY_VIEW),
    R("GET", "keys/create", Action.KEY_CREATE),
    R("POST", "keys/create", Action.KEY_CREATE),
    R("POST", "keys/<key:apikey_id>/revoke", Action.KEY_REVOKE),
    R("POST", "keys/<key:apikey_id>/rotate", Action.KEY_CREATE),
    R("GET", "keys/<key:apikey_id>", Action.KEY_VIEW),
    R("GET", "limits", Action.ORGANIZATION_VIEW),
    R("POST", "limits/set", Action.LIMIT_SET),
    R("GET", KEYS, Action.KEY_VIEW),
    R("POST", KEYS, Action.KEY_CREATE, {"project": "{project}", "label": "made"}),
    R("GET", ONE_KEY, Action.KEY_VIEW),
    R("POST", f"{ONE_KEY}/rotate", Action.KEY_CREATE),
    R("POST", f"{ONE_KEY}/revoke", Action.KEY_REVOKE),
    R("GET", f"{ONE_KEY}/report", Action.KEY_VIEW),
    R("PUT", f"{ONE_KEY}/limits", Action.LIMIT_SET),
    R("GET", f"{ONE_KEY}/effective", Action.KEY_VIEW, query="model=tiny"),
    R("GET", f"{OF_ORGANIZATION}/limits", Action.ORGANIZATION_VIEW),
    R("PUT", f"{OF_ORGANIZATION}/limits", Action.LIMIT_SET),
    R("PUT", f"{OF_ORGANIZATION}/projects/<proj:project_id>/limits", Action.LIMIT_SET),
    # Audit
    R("GET", "audit", Action.AUDIT_VIEW),
    R("GET", "audit.csv", Action.AUDIT_VIEW),
    R("GET", "audit/installation", Action.INSTALLATION_AUDIT),
    R("GET", "audit/installation.csv", Action.INSTALLATION_AUDIT),
    R("GET", "api/audit", Action.INSTALLATION_AUDIT),
    R("GET", "api/audit/head", Action.INSTALLATION_AUDIT),
    R("GET", "api/organizations/<org:organization_id>/audit", Action.AUDIT_VIEW),
    # Invoices, wallets, payments. Staff who grant credit see the money of every organization.
    R("GET", "invoices", Action.LEDGER_VIEW),
    R("GET", "invoices/preview", Action.LEDGER_VIEW, query="period=2025-10"),
    R("POST", "invoices/issue", Action.INVOICE_ISSUE, {"period": "2024-01"}),
    R("POST", "invoices/profile", Action.INVOICE_ISSUE),
    R("GET", "invoices/<inv:invoice_id>", Action.LEDGER_VIEW),
    R("GET", "invoices/<inv:invoice_id>.<slug:form>", Action.LEDGER_VIEW),
    R("POST", "invoices/<inv:invoice_id>/credit", Action.CREDIT_GRANT, but=NOT_STAFF),
    R("POST", "invoices/<inv:invoice_id>/paid", Action.CREDIT_GRANT, but=NOT_STAFF),
    R("POST", "invoices/<inv:invoice_id>/pay", Action.INVOICE_ISSUE),
    R("GET", "wallet", Action.LEDGER_VIEW),
    R("POST", "wallet/pay", Action.INVOICE_ISSUE),
    R("GET", "grants", Action.CREDIT_GRANT),
    R("POST", "grants/new", Action.CREDIT_GRANT),
    R("POST", GRANT_PAGE, Action.CREDIT_GRANT, but=NOT_STAFF),
    R("POST", "api/billing/payments/stripe", PUBLIC),
    R("GET", "api/billing/grants", Action.CREDIT_GRANT),
    R("GET", f"{BILLING}/invoices", Action.LEDGER_VIEW, but=SEES),
    R("POST", f"{BILLING}/invoices", Action.INVOICE_ISSUE, {"period": "2024-01"}),
    R("GET", f"{BILLING}/invoices/preview", Action.LEDGER_VIEW, query="period=2025-10", but=SEES),
    R("GET", f"{BILLING}/invoices/<inv:invoice_id>", Action.LEDGER_VIEW, but=SEES),
    R("GET", f"{BILLING}/invoices/<inv:invoice_id>.pdf", Action.LEDGER_VIEW, but=SEES),
    R("GET", f"{BILLING}/invoices/<inv:invoice_id>.csv", Action.LEDGER_VIEW, but=SEES),
    R("POST", f"{BILLING}/invoices/<inv:invoice_id>/credit-notes", Action.CREDIT_GRANT),
    R("POST", f"{BILLING}/invoices/<inv:invoice_id>/payments", Action.CREDIT_GRANT),
    R("GET", f"{BILLING}/standing", Action.LEDGER_VIEW, but=SEES),
    R("GET", f"{BILLING}/billing-profile", Action.LEDGER_VIEW, but=SEES),
    R("PUT", f"{BILLING}/billing-profile", Action.INVOICE_ISSUE, {"name": "Acme"}, but=SEES),
    R("GET", f"{BILLING}/payments", Action.LEDGER_VIEW, but=SEES),
    R("POST", f"{BILLING}/payment-orders", Action.INVOICE_ISSUE, {"amount_cents": 500}),
    R("GET", f"{BILLING}/wallet", Action.LEDGER_VIEW, but=SEES),
    R("GET", f"{BILLING}/grants", Action.LEDGER_VIEW, but=SEES),
    R("POST", f"{BILLING}/grants", Action.CREDIT_GRANT),
    # The operator is no user, and never the second person.
    R(
        "POST",
        f"{BILLING}/grants/<grant:grant_id>/approve",
        Action.CREDIT_GRANT,
        but={OPERATOR: 403},
    ),
    R("POST", f"{BILLING}/grants/<grant:grant_id>/refuse", Action.CREDIT_GRANT),
    # Prices, for staff
    R("GET", "catalog", Action.CATALOG_VIEW, but=SEES),
    R("POST", "catalog/add", Action.CATALOG_MANAGE),
    R("GET", "catalog/hub", Action.CATALOG_MANAGE),
    R("GET", "catalog/of/<path:name>", Action.CATALOG_VIEW, but=SEES),
    R("POST", "catalog/act/<path:name>", Action.CATALOG_MANAGE, body={"act": "switch"}),
    R("GET", "api/catalog/models/<path:model>/prices", Action.CATALOG_MANAGE),
    R("POST", "api/catalog/models/<path:model>/prices", Action.CATALOG_MANAGE),
    R("POST", "api/catalog/models/<path:model>/prices/end", Action.CATALOG_MANAGE),
    R("GET", "api/catalog/models/<path:model>/purchases", Action.CATALOG_MANAGE),
    R("POST", "api/catalog/models/<path:model>/purchases", Action.CATALOG_MANAGE),
    # Ledger and budgets
    R("GET", "spend", Action.LEDGER_VIEW),
    R("GET", "spend/<slug:panel>.csv", Action.LEDGER_VIEW),
    R("GET", "ledger", Action.LEDGER_VIEW),
    R("GET", "ledger/months", Action.LEDGER_VIEW),
    R("POST", "ledger/close", Action.PERIOD_CLOSE),
    R("GET", "budgets", Action.LEDGER_VIEW),
    R("POST", "budgets/save", Action.BUDGET_SET),
    R("POST", "budgets/stop", Action.BUDGET_SET, {"subject": "{organization}"}),
    R("GET", f"{BILLING}/accounts", Action.LEDGER_VIEW),
    R("GET", f"{BILLING}/entries", Action.LEDGER_VIEW),
    R("POST", f"{BILLING}/requests/<req:charge_id>/reversals", Action.CREDIT_GRANT),
    R("GET", f"{BILLING}/periods", Action.LEDGER_VIEW),
    R("POST", f"{BILLING}/periods/<str:period>/close", Action.PERIOD_CLOSE),
    R("GET", f"{BILLING}/reconciliations", Action.LEDGER_VIEW),
    R("GET", f"{BILLING}/budgets", Action.LEDGER_VIEW),
    R("PUT", f"{BILLING}/budgets/<id:subject_id>", Action.BUDGET_SET, {"allowance_nano": 1}),
    R("DELETE", f"{BILLING}/budgets/<id:subject_id>", Action.BUDGET_SET),
    # Exports
    R("GET", "exports", Action.EXPORT_MAKE),
    R("POST", "exports", Action.EXPORT_MAKE),
    R("GET", "exports/rows", Action.EXPORT_MAKE),
    R("GET", "exports/<export:export_id>/file", Action.EXPORT_MAKE),
    R("GET", "exports/<export:export_id>/manifest", Action.EXPORT_MAKE),
    R("GET", f"{BILLING}/exports", Action.EXPORT_MAKE),
    R("POST", f"{BILLING}/exports", Action.EXPORT_MAKE, {"kind": "usage", "period": "2025-10"}),
    R("GET", f"{BILLING}/exports/stream", Action.EXPORT_MAKE, query="kind=usage&period=2025-10"),
    R("GET", f"{BILLING}/exports/<export:export_id>", Action.EXPORT_MAKE),
    R("GET", f"{BILLING}/exports/<export:export_id>/file", Action.EXPORT_MAKE),
    # Admin keys, and pages for developers
    R("GET", "admin-keys", Action.ADMIN_KEY_MANAGE),
    R("GET", "admin-keys/create", Action.ADMIN_KEY_MANAGE),
    R("POST", "admin-keys/create", Action.ADMIN_KEY_MANAGE),
    R("POST", "admin-keys/<adminkey:key_id>/revoke", Action.ADMIN_KEY_MANAGE),
    R("GET", "developers", Action.KEY_VIEW),
    R("GET", "developers/api", Action.ORGANIZATION_VIEW),
    R("GET", ADMIN_KEYS, Action.ADMIN_KEY_MANAGE),
    R("POST", ADMIN_KEYS, Action.ADMIN_KEY_MANAGE, {"label": "m", "actions": ["key.view"]}),
    R("GET", f"{ADMIN_KEYS}/<adminkey:key_id>", Action.ADMIN_KEY_MANAGE),
    R("DELETE", f"{ADMIN_KEYS}/<adminkey:key_id>", Action.ADMIN_KEY_MANAGE),
    # The organization's own figures; the operator names it in a header.
    R("GET", "v1/organization/usage/completions", Action.REQUEST_VIEW, query="start_time=0"),
    R("GET", "v1/organization/usage/embeddings", Action.REQUEST_VIEW, query="start_time=0"),
    R("GET", "v1/organization/costs", Action.LEDGER_VIEW, query="start_time=0"),
    R("GET", "v1/organization/projects", Action.ORGANIZATION_VIEW),
    R("GET", f"{OWN_PROJECT}", Action.ORGANIZATION_VIEW, but={OPERATOR: 400}),
    R("GET", f"{OWN_PROJECT}/api_keys", Action.KEY_VIEW, but={OPERATOR: 400}),
    R("GET", "v1/organization/audit_logs", Action.AUDIT_VIEW),
    # Margin
    R("GET", "margin", Action.MARGIN_VIEW),
    R("GET", "margin.csv", Action.MARGIN_VIEW),
    R("GET", "api/billing/margin", Action.MARGIN_VIEW),
    # Insights
    R("GET", "insights", Action.REQUEST_VIEW),
    R("GET", "insights.csv", Action.REQUEST_VIEW),
    R("GET", "insights/check", Action.PLAYGROUND_USE),
    R("GET", "insights/stages", Action.ORGANIZATION_VIEW),
    R("GET", "insights/stages.<slug:form>", Action.ORGANIZATION_VIEW),
    R("GET", "insights/comparison", Action.ORGANIZATION_VIEW),
    R("POST", "insights/comparison/run", Action.FLEET_MANAGE),
    R("GET", "insights/capacity", Action.FLEET_VIEW),
    R("GET", "insights/capacity.csv", Action.FLEET_VIEW),
    R("POST", "insights/capacity/keep", Action.FLEET_MANAGE),
    R("GET", "insights/capacity/<worksheet:revision_id>", Action.FLEET_VIEW),
    R("GET", "insights/plan", Action.FLEET_VIEW),
    R("GET", "insights/plan/<slug:chart>.csv", Action.FLEET_VIEW),
    R("GET", f"{INSIGHTS}/hygiene", Action.REQUEST_VIEW),
    R("GET", f"{INSIGHTS}/stage-map", Action.ORGANIZATION_VIEW),
    R("GET", f"{INSIGHTS}/comparisons", Action.ORGANIZATION_VIEW),
    R("GET", "api/insights/capacity", Action.FLEET_VIEW),
    R("GET", "api/insights/plan", Action.FLEET_VIEW),
    R("GET", "api/insights/capacity/revisions", Action.FLEET_VIEW),
    R(
        "POST",
        "api/insights/capacity/revisions",
        Action.FLEET_MANAGE,
        {"pool": "default", "quarter": "2000-Q1"},
    ),
    R("GET", "api/insights/capacity/revisions/<worksheet:revision_id>", Action.FLEET_VIEW),
    # Pages: fleet, for staff
    R("GET", "map", Action.FLEET_VIEW),
    R("GET", "fleet", Action.FLEET_VIEW),
    R("GET", "fleet/<slug:chart>.csv", Action.FLEET_VIEW),
    R("GET", "fleet/tokens", Action.FLEET_MANAGE),
    R("POST", "fleet/tokens", Action.FLEET_MANAGE),
    R("POST", "fleet/tokens/<token:token_id>/revoke", Action.FLEET_MANAGE),
    R("POST", "fleet/pools", Action.FLEET_MANAGE),
    R("POST", "fleet/nodes/<node:node_id>/models", Action.FLEET_MANAGE),
    R("POST", "fleet/nodes/<node:node_id>/<slug:action>", Action.FLEET_MANAGE),
    R("POST", "fleet/digests/<digest:digest_id>/<slug:decision>", Action.FLEET_MANAGE),
    # API
    R("GET", "api/schema", SIGNED_IN | {OPERATOR, ADMIN_KEY}),
    R("GET", "metrics", METRICS),
    R("GET", "api/fleet/map", Action.FLEET_VIEW),
    R("GET", "api/fleet/pools", Action.FLEET_VIEW),
    R("PUT", "api/fleet/pools/<str:name>", Action.FLEET_MANAGE),
    R("GET", "api/fleet/pools/<str:name>/desired", METRICS - {STAFF}),
    R("GET", "api/fleet/tokens", Action.FLEET_VIEW),
    R("POST", "api/fleet/tokens", Action.FLEET_MANAGE, {"pool": "default"}),
    R("DELETE", "api/fleet/tokens/<token:token_id>", Action.FLEET_MANAGE),
    R("POST", "api/fleet/enrol", PUBLIC),
    R("GET", "api/fleet/digests", Action.FLEET_VIEW),
    R("POST", "api/fleet/digests/<digest:digest_id>/approve", Action.FLEET_MANAGE),
    R("POST", "api/fleet/digests/<digest:digest_id>/refuse", Action.FLEET_MANAGE),
    R("PUT", "api/fleet/nodes/<path:name>/models", Action.FLEET_MANAGE, {"models": None}),
    R("POST", "api/fleet/nodes/<path:name>/approve", Action.FLEET_MANAGE),
    R("POST", "api/fleet/nodes/<path:name>/drain", Action.FLEET_MANAGE),
    R("POST", "api/fleet/nodes/<path:name>/undrain", Action.FLEET_MANAGE),
    R("POST", "api/fleet/nodes/<path:name>/remove", Action.FLEET_MANAGE),
    R("POST", "api/fleet/nodes/<path:name>/forgive", Action.FLEET_MANAGE),
    # Pages: batches
    R("GET", "batches", Action.BATCH_MANAGE),
    R("POST", "batches/<batch:batch_id>/cancel", Action.BATCH_MANAGE),
    R("GET", "batches/<batch:batch_id>/<slug:kind>", Action.BATCH_MANAGE),
    # Pages: prompt templates
    R("GET", "templates", Action.TEMPLATE_VIEW),
    R("POST", "templates/new", Action.TEMPLATE_MANAGE),
    R("GET", "templates/<str:name>/<int:version>", Action.TEMPLATE_VIEW),
    R("POST", "templates/<str:name>/<int:version>/try", Action.TEMPLATE_VIEW),
    R("GET", "templates/<str:name>/trial", Action.PLAYGROUND_USE),
    R("POST", "templates/<str:name>/trial", Action.PLAYGROUND_USE, TRIAL),
    R("POST", PROMPT_ACT, Action.TEMPLATE_MANAGE),
    # API: prompt templates
    R("GET", "api/catalog/templates/<org:organization>", Action.TEMPLATE_VIEW),
    R(
        "POST",
        "api/catalog/templates/<org:organization>",
        Action.TEMPLATE_MANAGE,
        {"name": "new"},
    ),
    R("GET", PROMPT, Action.TEMPLATE_VIEW),
    R("POST", f"{PROMPT}/versions", Action.TEMPLATE_MANAGE, {"body": PROMPT_BODY}),
    R("POST", f"{PROMPT}/rollback", Action.TEMPLATE_MANAGE),
    R("GET", PROMPT_VERSION, Action.TEMPLATE_VIEW),
    R("PUT", PROMPT_VERSION, Action.TEMPLATE_MANAGE, {"body": PROMPT_BODY, "revision": 1}),
    R("DELETE", PROMPT_VERSION, Action.TEMPLATE_MANAGE),
    R("POST", f"{PROMPT_VERSION}/dry-run", Action.TEMPLATE_VIEW),
    R("POST", f"{PROMPT_VERSION}/publish", Action.TEMPLATE_MANAGE, {"revision": 1}),
    R(
        "POST",
        f"{PROMPT_VERSION}/canary",
        Action.TEMPLATE_MANAGE,
        {"revision": 1, "share_permille": 10},
    ),
    R("POST", f"{PROMPT_VERSION}/stop", Action.TEMPLATE_MANAGE),
    # Pages: configuration
    R("GET", "configuration", Action.CONFIG_MANAGE),
    R("GET", "configuration/file", Action.CONFIG_MANAGE),
    R("POST", "configuration/compare", Action.CONFIG_MANAGE),
    R("POST", "configuration/apply", Action.CONFIG_MANAGE),
    # API: configuration as code
    R("GET", "api/blueprint", Action.CONFIG_MANAGE),
    R("POST", "api/blueprint/validate", Action.CONFIG_MANAGE),
    R("POST", "api/blueprint/diff", Action.CONFIG_MANAGE),
    R("POST", "api/blueprint/apply", Action.CONFIG_MANAGE),
)
