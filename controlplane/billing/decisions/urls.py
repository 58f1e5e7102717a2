"""Addresses of decisions under /api/billing/."""

from django.urls import path

from controlplane.billing.decisions import api

_MINE = "organizations/<org:organization_id>"

urlpatterns = [
    path("grants", api.PendingGrants.as_view()),
    *(
        path(
            f"{_MINE}/grants/<grant:grant_id>/{word}",
            api.GrantDecision.as_view(),
            {"decision": word},
        )
        for word in api.DECISIONS
    ),
]
