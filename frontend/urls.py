"""Addresses of the pages. A page's address is its view: range, filters and open item are in it."""

from django.urls import path

from frontend.cache import views as cache
from frontend.configuration import views as configuration
from frontend.developers import api_views, batch_views, playground_views, prompt_views
from frontend.fleet import views as fleet
from frontend.insights import capacity_views, stage_map_views
from frontend.insights import views as insights
from frontend.keys import admin_views, limit_views
from frontend.keys import views as keys
from frontend.latency import views as latency
from frontend.models import views as models
from frontend.money import (
    budget_views,
    export_views,
    ledger_views,
    margin_views,
    spend_views,
)
from frontend.overview import views as overview
from frontend.payments import invoice_views, wallet_views
from frontend.people import (
    account_views,
    audit_views,
    member_views,
    organization_views,
    project_views,
    provider_views,
    sign_in_views,
)
from frontend.requests import content_views, link_views
from frontend.requests import views as requests
from frontend.routing import change_views
from frontend.routing import views as routing
from frontend.slos import views as slos
from frontend.stages import views as stages

_KEPT = "conversations/<proj:project_id>"
_TEMPLATE = "templates/<str:name>/<int:version>"
_SHARE = "shares/<org:organization_id>/<proj:project_id>"
_LINK = "organizations/<org:organization_id>/links/<user:user_id>"
_GRANT = "grants/<org:organization_id>/<grant:grant_id>"

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("overview/<slug:chart>.csv", overview.overview_csv, name="overview_csv"),
    path("latency", latency.latency, name="latency"),
    path("latency/<slug:chart>.csv", latency.latency_csv, name="latency_csv"),
    path("cache", cache.cache, name="cache"),
    path("cache/<slug:chart>.csv", cache.cache_csv, name="cache_csv"),
    path("requests", requests.request_index, name="requests"),
    path("requests.csv", link_views.request_csv, name="requests_csv"),
    path("requests/exemplar", link_views.request_exemplar, name="request_exemplar"),
    path("requests/<req:request_id>", requests.request_detail, name="request"),
    path("conversations", content_views.conversations, name="conversations"),
    path("conversations.jsonl", content_views.conversations_export, name="conversations_export"),
    path(f"{_KEPT}/forget", content_views.content_remove, name="end_user_remove"),
    path(f"{_KEPT}/<req:request_id>", content_views.content_show, name="content_show"),
    path(f"{_KEPT}/<req:request_id>/delete", content_views.content_remove, name="content_remove"),
    path("insights", insights.insight_index, name="insights"),
    path("insights.csv", insights.insight_csv, name="insights_csv"),
    path("insights/stages", stage_map_views.stage_map, name="stage_map"),
    path("insights/stages.<slug:form>", stage_map_views.stage_map_file, name="stage_map_file"),
    path("insights/comparison", stage_map_views.comparison, name="comparison"),
    path("insights/capacity", capacity_views.capacity, name="capacity"),
    path("insights/capacity.csv", capacity_views.capacity_csv, name="capacity_csv"),
    path("catalog", models.model_index, name="models"),
    path("catalog/add", models.model_add, name="model_add"),
    path("catalog/act/<path:name>", models.model_act, name="model_act"),
    path("catalog/of/<path:name>", models.model_detail, name="model"),
    path("keys", keys.key_index, name="keys"),
    path("keys/create", keys.key_create, name="key_create"),
    path("keys/<key:apikey_id>", keys.key_detail, name="key"),
    path("keys/<key:apikey_id>/revoke", keys.key_revoke, name="key_revoke"),
    path("keys/<key:apikey_id>/rotate", keys.key_rotate, name="key_rotate"),
    path("limits", limit_views.limit_index, name="limits"),
    path("limits/set", limit_views.limit_save, name="limit_save"),
    path("admin-keys", admin_views.admin_key_index, name="admin_keys"),
    path("admin-keys/create", admin_views.admin_key_create, name="admin_key_create"),
    path(
        "admin-keys/<adminkey:key_id>/revoke", admin_views.admin_key_revoke, name="admin_key_revoke"
    ),
    path("slos", slos.slo_index, name="slos"),
    path("slos.csv", slos.slo_csv, name="slo_csv"),
    path("slos/openslo", slos.slo_openslo, name="slo_openslo"),
    path("slos/new", slos.slo_save, name="slo_save"),
    path("slos/channels", slos.slo_channel_add, name="slo_channel_add"),
    path("slos/channels/<channel:channel_id>", slos.slo_channel_remove, name="slo_channel_remove"),
    path("slos/<objective:objective_id>", slos.slo_detail, name="slo"),
    path("slos/<objective:objective_id>.csv", slos.slo_burn_csv, name="slo_burn_csv"),
    path("slos/<objective:objective_id>/change", slos.slo_change, name="slo_change"),
    path("stages", stages.stage_index, name="stages"),
    path("stages/<slug:stage>", stages.stage_save, name="stage_save"),
    path("runbooks", stages.runbook_index, name="runbooks"),
    path("runbooks/<slug:slug>", stages.runbook, name="runbook"),
    path("budgets", budget_views.budget_index, name="budgets"),
    path("budgets/save", budget_views.budget_save, name="budget_save"),
    path("budgets/stop", budget_views.budget_stop, name="budget_stop"),
    path("spend", spend_views.spend_index, name="spend"),
    path("spend/<slug:panel>.csv", spend_views.spend_csv, name="spend_csv"),
    path("ledger", ledger_views.ledger, name="ledger"),
    path("ledger/months", ledger_views.ledger_months, name="ledger_months"),
    path("ledger/close", ledger_views.ledger_close, name="ledger_close"),
    path("exports", export_views.export_index, name="exports"),
    path("exports/rows", export_views.export_rows, name="export_rows"),
    path("exports/<export:export_id>/file", export_views.export_file, name="export_file"),
    path(
        "exports/<export:export_id>/manifest", export_views.export_manifest, name="export_manifest"
    ),
    path("margin", margin_views.margin_index, name="margin"),
    path("margin.csv", margin_views.margin_csv, name="margin_csv"),
    path("playground", playground_views.playground, name="playground"),
    path("playground/token", playground_views.token, name="playground_token"),
    path("playground/cost/<req:request_id>", playground_views.cost, name="playground_cost"),
    path("templates", prompt_views.prompt_index, name="prompts"),
    path("templates/new", prompt_views.prompt_new, name="prompt_new"),
    path(_TEMPLATE, prompt_views.prompt_version, name="prompt_version"),
    path(f"{_TEMPLATE}/try", prompt_views.prompt_try, name="prompt_try"),
    path(f"{_TEMPLATE}/<slug:action>", prompt_views.prompt_act, name="prompt_act"),
    path("batches", batch_views.batch_index, name="batches"),
    path("batches/<batch:batch_id>/cancel", batch_views.batch_cancel, name="batch_cancel"),
    path("batches/<batch:batch_id>/<slug:kind>", batch_views.batch_file, name="batch_file"),
    path("developers", api_views.api_page, name="api_page"),
    path("developers/api", api_views.api_docs, name="api_docs"),
    path("fleet", fleet.fleet_index, name="fleet"),
    path("fleet/<slug:chart>.csv", fleet.fleet_csv, name="fleet_csv"),
    path("fleet/tokens", fleet.token_make, name="fleet_token"),
    path("fleet/tokens/<token:token_id>/revoke", fleet.token_end, name="fleet_token_end"),
    path("fleet/pools", fleet.pool_save, name="fleet_pool"),
    path("fleet/nodes/<node:node_id>/models", fleet.node_models, name="fleet_models"),
    path("fleet/nodes/<node:node_id>/<slug:action>", fleet.node_act, name="fleet_node"),
    path("fleet/digests/<digest:digest_id>/<slug:decision>", fleet.digest_act, name="fleet_digest"),
    path("configuration", configuration.configuration, name="configuration"),
    path("configuration/file", configuration.configuration_file, name="configuration_file"),
    path(
        "configuration/compare",
        configuration.configuration_compare,
        name="configuration_compare",
    ),
    path("configuration/apply", configuration.configuration_change, name="configuration_change"),
    path("routing", routing.routing, name="routing"),
    path("routing/draft", change_views.routing_draft, name="routing_draft"),
    path("routing/rollback", change_views.routing_rollback, name="routing_rollback"),
    path("routing/<int:version>", routing.routing_version, name="routing_version"),
    path("routing/<int:version>/dry-run", routing.routing_dry_run, name="routing_dry_run"),
    path("routing/<int:version>/save", change_views.routing_save, name="routing_save"),
    path("routing/<int:version>/publish", change_views.routing_publish, name="routing_publish"),
    path("routing/<int:version>/canary", change_views.routing_canary, name="routing_canary"),
    path("routing/<int:version>/promote", change_views.routing_promote, name="routing_promote"),
    path("routing/<int:version>/stop", change_views.routing_stop, name="routing_stop"),
    path("routing/<int:version>/discard", change_views.routing_discard, name="routing_discard"),
    path("members", member_views.member_index, name="members"),
    path("members/second-factor", member_views.second_factor, name="members_second_factor"),
    path("members/invite", member_views.invite, name="invite"),
    path("members/<user:user_id>/role", member_views.member_role, name="member_role"),
    path("members/<user:user_id>/link", member_views.member_link, name="member_link"),
    path("members/<user:user_id>/remove", member_views.member_remove, name="member_remove"),
    path("invitations/<invite:invitation_id>", member_views.invitation_end, name="invitation_end"),
    path("invitation/<str:token>", member_views.invitation, name="invitation"),
    path("projects", project_views.project_index, name="projects"),
    path("projects/add", project_views.project_add, name="project_add"),
    path("projects/<proj:project_id>", project_views.project_save, name="project_save"),
    path("projects/<proj:project_id>/keeping", project_views.project_keep, name="project_keep"),
    path("shares", project_views.share_index, name="shares"),
    path(_SHARE, project_views.share_save, name="share_save"),
    path("audit", audit_views.audit_index, name="audit"),
    path("audit.csv", audit_views.audit_csv, name="audit_csv"),
    path("audit/installation", audit_views.audit_installation, name="audit_installation"),
    path(
        "audit/installation.csv", audit_views.audit_installation_csv, name="audit_installation_csv"
    ),
    path("organizations", organization_views.organization_index, name="organizations"),
    path("organizations/new", organization_views.organization_new, name="organization_new"),
    path(_LINK, organization_views.organization_link, name="organization_link"),
    path("organization", sign_in_views.organization_choose, name="organization_choose"),
    path("sign-in", sign_in_views.sign_in, name="sign_in"),
    path("sign-in/forgot", sign_in_views.forgot, name="forgot"),
    path("sign-in/second", sign_in_views.second_factor, name="second_factor"),
    path("sign-in/passkey", account_views.passkey_ask, name="passkey_ask"),
    path("sign-in/provider", provider_views.provider_begin, name="provider_begin"),
    path("sign-in/provider/done", provider_views.provider_done, name="provider_done"),
    path("sign-out", sign_in_views.sign_out, name="sign_out"),
    path("confirm", account_views.confirm, name="confirm"),
    path("confirm/form", account_views.confirmed, name="confirmed"),
    path("account", account_views.account, name="account"),
    path("account/password", account_views.password, name="password"),
    path("account/sessions/others", account_views.sessions_close, name="sessions_close"),
    path(
        "account/sessions/<session:session_id>", account_views.session_close, name="session_close"
    ),
    path("account/app", account_views.app_setup, name="app_setup"),
    path("account/passkeys/new", account_views.passkey_new, name="passkey_new"),
    path("account/passkeys", account_views.passkey_save, name="passkey_save"),
    path("account/codes", account_views.codes_new, name="codes_new"),
    path("account/factors/<factor:factor_id>", account_views.factor_delete, name="factor_delete"),
    path("setup/<str:token>", sign_in_views.setup, name="setup"),
    path("invoices", invoice_views.invoice_index, name="invoices"),
    path("invoices/preview", invoice_views.invoice_preview, name="invoice_preview"),
    path("invoices/issue", invoice_views.invoice_make, name="invoice_make"),
    path("invoices/profile", invoice_views.invoice_profile, name="invoice_profile"),
    path("invoices/<inv:invoice_id>", invoice_views.invoice_detail, name="invoice"),
    path("invoices/<inv:invoice_id>.<slug:form>", invoice_views.invoice_file, name="invoice_file"),
    path("invoices/<inv:invoice_id>/credit", invoice_views.invoice_credit, name="invoice_credit"),
    path("invoices/<inv:invoice_id>/paid", invoice_views.invoice_paid, name="invoice_paid"),
    path("invoices/<inv:invoice_id>/pay", invoice_views.invoice_pay, name="invoice_pay"),
    path("wallet", wallet_views.wallet, name="wallet"),
    path("wallet/pay", wallet_views.wallet_pay, name="wallet_pay"),
    path("grants", wallet_views.grant_index, name="grants"),
    path("grants/new", wallet_views.grant_make, name="grant_make"),
    path(f"{_GRANT}/<slug:decision>", wallet_views.grant_decide, name="grant_decide"),
]
