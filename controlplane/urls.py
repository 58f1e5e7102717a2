"""URLs that Django serves; `/v1/*` and `/fleet` never reach it (see `asgi.py`)."""

from django.urls import include, path

from controlplane.billing.budgets import api as budgets
from controlplane.billing.decisions import api as decisions
from controlplane.billing.exports import api as exports
from controlplane.billing.invoices import api as invoices
from controlplane.billing.ledger import api as ledger
from controlplane.billing.margin import api as margin
from controlplane.billing.months import api as months
from controlplane.billing.payments import api as payments
from controlplane.billing.reversals import api as reversals
from controlplane.billing.wallets import api as wallets
from controlplane.blueprint import api as blueprint
from controlplane.catalog import api_prices as prices
from controlplane.catalog import api_prompts as prompts
from controlplane.composed.keys import api as keys
from controlplane.composed.limits import api as limits
from controlplane.composed.openai_admin import api as openai_admin
from controlplane.composed.organizations import api as organizations
from controlplane.contents import api as contents
from controlplane.core.api.description import Description
from controlplane.core.converters import converters_register
from controlplane.fleet import api as fleet
from controlplane.fleet import api_models as models
from controlplane.insights import api as insights
from controlplane.routing import api as routing
from controlplane.slos import api as slos
from controlplane.tenants import projects_api as projects
from controlplane.tenants.adminkeys import api as adminkeys
from controlplane.tenants.audit import api as audit
from controlplane.tenants.people import api as people
from frontend.metrics import metrics

converters_register()

handler400 = "controlplane.core.errors.views.bad_request"
handler404 = "controlplane.core.errors.views.not_found"
handler500 = "controlplane.core.errors.views.server_error"

_MINE = "organizations/<org:organization_id>"
_KEY = f"{_MINE}/keys/<key:inference_key>"
_TEMPLATE = "templates/<org:organization>/<str:name>"
_VERSION = f"{_TEMPLATE}/versions/<int:version>"
_MEMBER = f"{_MINE}/members/<user:user_id>"
_PROJECT = f"{_MINE}/projects/<proj:project_id>"
_INVOICE = f"{_MINE}/invoices/<inv:invoice_id>"
_GRANT = f"{_MINE}/grants/<grant:grant_id>"
_EXPORT = f"{_MINE}/exports/<export:export_id>"
_FILE, _DECISION = invoices.InvoiceFile.as_view(), decisions.GrantDecision.as_view()

# A version is said by its number.
_ROUTING = [
    path("versions", routing.RuleSets.as_view()),
    path("versions/<int:version>", routing.OneRuleSet.as_view()),
    path("versions/<int:version>/validate", routing.Validate.as_view()),
    path("versions/<int:version>/dry-run", routing.DryRunView.as_view()),
    path("versions/<int:version>/publish", routing.Publish.as_view()),
    path("versions/<int:version>/canary", routing.CanaryStart.as_view()),
    path("versions/<int:version>/promote", routing.CanaryPromote.as_view()),
    path("versions/<int:version>/stop", routing.CanaryStop.as_view()),
    path("canary", routing.Canary.as_view()),
    path("rollback", routing.Rollback.as_view()),
]

_SLOS = [
    path(f"{_MINE}/objectives", slos.Objectives.as_view()),
    path(f"{_MINE}/objectives/<objective:objective_id>", slos.OneObjective.as_view()),
    path(f"{_MINE}/alerts", slos.Alerts.as_view()),
    path(f"{_MINE}/channels", slos.Channels.as_view()),
    path(f"{_MINE}/channels/<channel:channel_id>", slos.OneChannel.as_view()),
    path(f"{_MINE}/openslo", slos.OpenSlo.as_view()),
    path(f"{_MINE}/stages", slos.Stages.as_view()),
    path("stages/<slug:stage>", slos.OneStage.as_view()),
]

# A template is said by its organization and name.
_CATALOG = [
    path("models/<path:model>/prices", prices.Prices.as_view()),
    path("models/<path:model>/prices/end", prices.OverrideEnd.as_view()),
    path("models/<path:model>/purchases", prices.PurchasesView.as_view()),
    path("templates/<org:organization>", prompts.Prompts.as_view()),
    path(_TEMPLATE, prompts.OnePrompt.as_view()),
    path(f"{_TEMPLATE}/versions", prompts.Drafts.as_view()),
    path(f"{_TEMPLATE}/rollback", prompts.PromptRollback.as_view()),
    path(_VERSION, prompts.OneVersion.as_view()),
    path(f"{_VERSION}/dry-run", prompts.PromptDryRunView.as_view()),
    path(f"{_VERSION}/publish", prompts.PromptPublish.as_view()),
    path(f"{_VERSION}/canary", prompts.PromptCanaryStart.as_view()),
    path(f"{_VERSION}/stop", prompts.PromptCanaryStop.as_view()),
]

# A node is said by its name.
_FLEET = [
    path("pools", fleet.Pools.as_view()),
    path("pools/<str:name>", fleet.OnePool.as_view()),
    path("pools/<str:name>/desired", fleet.Desired.as_view()),
    path("tokens", fleet.Tokens.as_view()),
    path("tokens/<token:token_id>", fleet.OneToken.as_view()),
    path("enrol", fleet.Enrol.as_view()),
    path("digests", fleet.Digests.as_view()),
    *(
        path(
            f"digests/<digest:digest_id>/{word}", fleet.DigestDecision.as_view(), {"decision": word}
        )
        for word in fleet.DECISIONS
    ),
    path("nodes/<path:name>/models", fleet.NodeModels.as_view()),
    *(
        path(f"nodes/<path:name>/{word}", fleet.NodeAction.as_view(), {"action": word})
        for word in fleet.ACTIONS
    ),
]

_OPENAI_ADMIN = [
    path("usage/completions", openai_admin.Completions.as_view()),
    path("usage/embeddings", openai_admin.Embeddings.as_view()),
    path("costs", openai_admin.Costs.as_view()),
    path("projects", openai_admin.OpenAIProjects.as_view()),
    path("projects/<proj:project_id>", openai_admin.OpenAIProject.as_view()),
    path("projects/<proj:project_id>/api_keys", openai_admin.ProjectKeys.as_view()),
    path("audit_logs", openai_admin.AuditLogs.as_view()),
]

_BILLING = [
    path(f"{_MINE}/accounts", ledger.Accounts.as_view()),
    path(f"{_MINE}/entries", ledger.Entries.as_view()),
    path(f"{_MINE}/reconciliations", ledger.Reconciliations.as_view()),
    path(f"{_MINE}/periods", months.Months.as_view()),
    path(f"{_MINE}/periods/<str:period>/close", months.MonthClose.as_view()),
    path(f"{_MINE}/budgets", budgets.Budgets.as_view()),
    path(f"{_MINE}/budgets/<id:subject_id>", budgets.OneBudget.as_view()),
    path(f"{_MINE}/wallet", wallets.OneWallet.as_view()),
    path(f"{_MINE}/grants", wallets.Grants.as_view()),
    path("payments/stripe", payments.stripe_events),
    path(f"{_MINE}/payments", payments.Payments.as_view()),
    path(f"{_MINE}/payment-orders", payments.PaymentOrders.as_view()),
    path(f"{_INVOICE}/payments", payments.InvoicePayments.as_view()),
    path(f"{_MINE}/invoices", invoices.Invoices.as_view()),
    path(f"{_MINE}/invoices/preview", invoices.Preview.as_view()),
    path(_INVOICE, invoices.OneInvoice.as_view()),
    *(path(f"{_INVOICE}.{form}", _FILE, {"form": form}) for form in invoices.FILES),
    path(f"{_MINE}/standing", invoices.OrganizationStanding.as_view()),
    path(f"{_MINE}/billing-profile", invoices.Profile.as_view()),
    path(f"{_INVOICE}/credit-notes", reversals.CreditNotes.as_view()),
    path(f"{_MINE}/requests/<req:charge_id>/reversals", reversals.Reversals.as_view()),
    path("grants", decisions.PendingGrants.as_view()),
    *(path(f"{_GRANT}/{word}", _DECISION, {"decision": word}) for word in decisions.DECISIONS),
    path(f"{_MINE}/exports", exports.Exports.as_view()),
    path(f"{_MINE}/exports/stream", exports.ExportStream.as_view()),
    path(_EXPORT, exports.OneExport.as_view()),
    path(f"{_EXPORT}/file", exports.ExportDownload.as_view()),
    path("margin", margin.MarginView.as_view()),
]

_INSIGHTS = [
    path(f"{_MINE}/hygiene", insights.HygieneView.as_view()),
    path(f"{_MINE}/stage-map", insights.StageMapView.as_view()),
    path(f"{_MINE}/comparisons", insights.ComparisonsView.as_view()),
    path("capacity", insights.CapacityView.as_view()),
]

_OTHERS = [
    path("blueprint", blueprint.ExportConfiguration.as_view()),
    path("blueprint/validate", blueprint.ValidateConfiguration.as_view()),
    path("blueprint/diff", blueprint.Diff.as_view()),
    path("blueprint/apply", blueprint.Apply.as_view()),
    path("organizations", organizations.Organizations.as_view()),
    path(f"{_MINE}/models", models.Models.as_view()),
    path(f"{_MINE}/keys", keys.KeysView.as_view()),
    path(_KEY, keys.OneKey.as_view()),
    path(f"{_KEY}/rotate", keys.KeyRotation.as_view()),
    path(f"{_KEY}/revoke", keys.KeyRevocation.as_view()),
    path(f"{_KEY}/report", keys.KeyTouched.as_view()),
    path(f"{_KEY}/limits", limits.KeyLimits.as_view()),
    path(f"{_KEY}/effective", limits.EffectiveLimits.as_view()),
    path(f"{_MINE}/limits", limits.AllLimits.as_view()),
    path(f"{_MINE}/projects/<proj:project_id>/limits", limits.ProjectLimits.as_view()),
    path(f"{_MINE}/admin-keys", adminkeys.AdminKeys.as_view()),
    path(f"{_MINE}/admin-keys/<adminkey:key_id>", adminkeys.OneAdminKey.as_view()),
    path(f"{_MINE}/members", people.Members.as_view()),
    path(_MEMBER, people.OneMember.as_view()),
    path(f"{_MEMBER}/password-link", people.PasswordLink.as_view()),
    path(f"{_MINE}/security", people.Security.as_view()),
    path(f"{_MINE}/invitations", people.Invitations.as_view()),
    path(f"{_MINE}/invitations/<invite:invitation_id>", people.OneInvitation.as_view()),
    path(f"{_MINE}/projects", projects.Projects.as_view()),
    path(_PROJECT, projects.OneProject.as_view()),
    path(f"{_PROJECT}/weight", projects.Weight.as_view()),
    path("audit", audit.InstallationAudit.as_view()),
    path("audit/head", audit.AuditHead.as_view()),
    path(f"{_MINE}/audit", audit.OrganizationAudit.as_view()),
    path(f"{_PROJECT}/keeping", contents.KeepingView.as_view()),
    path(f"{_PROJECT}/contents", contents.ContentsView.as_view()),
    path(f"{_PROJECT}/contents/<req:request_id>", contents.OneContentView.as_view()),
]

urlpatterns = [
    path("api/schema", Description.as_view(), name="api_schema"),
    path("api/routing/", include(_ROUTING)),
    path("api/slos/", include(_SLOS)),
    path("api/catalog/", include(_CATALOG)),
    path("api/fleet/", include(_FLEET)),
    path("v1/organization/", include(_OPENAI_ADMIN)),
    path("api/billing/", include(_BILLING)),
    path("api/", include(_OTHERS)),
    path("api/insights/", include(_INSIGHTS)),
    path("metrics", metrics),
    path("", include("frontend.urls")),
]
