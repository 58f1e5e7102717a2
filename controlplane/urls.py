"""URLs that Django serves; `/v1/*` and `/fleet` never reach it (see `asgi.py`).

Views of `/api` and of pages say their addresses themselves, but for those with a word in it.
"""

from pathlib import Path

from django.urls import include, path

from controlplane.billing.decisions.api import GrantDecision
from controlplane.billing.decisions.services import DECISIONS
from controlplane.billing.invoices import api as invoices
from controlplane.billing.payments.api import stripe_events
from controlplane.core.addresses import modules_load, paths_of
from controlplane.core.api.description import Description
from controlplane.core.api.views import VIEWS
from controlplane.core.converters import converters_register
from controlplane.fleet import api as fleet
from frontend.metrics import metrics

converters_register()
modules_load(Path(__file__).parent, "api.py", "api_*.py")

handler400 = "controlplane.core.errors.views.bad_request"
handler404 = "controlplane.core.errors.views.not_found"
handler500 = "controlplane.core.errors.views.server_error"

_MINE = "api/billing/organizations/<org:organization_id>"
_WORDS = (
    (f"{_MINE}/invoices/<inv:invoice_id>.", invoices.InvoiceFile, "form", invoices.FILES),
    (f"{_MINE}/grants/<grant:grant_id>/", GrantDecision, "decision", DECISIONS),
    ("api/fleet/digests/<digest:digest_id>/", fleet.DigestDecision, "decision", fleet.DECISIONS),
    ("api/fleet/nodes/<path:name>/", fleet.NodeAction, "action", fleet.ACTIONS),
)

urlpatterns = [
    path("api/schema", Description.as_view(), name="api_schema"),
    path("api/billing/payments/stripe", stripe_events),
    *(
        path(f"{address}{word}", view.as_view(), {name: word})
        for address, view, name, words in _WORDS
        for word in words
    ),
    *paths_of({address: view.as_view() for address, view in VIEWS.items()}),
    path("metrics", metrics),
    path("", include("frontend.urls")),
]
