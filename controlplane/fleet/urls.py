"""Addresses under /api/fleet/; a node is said by its name."""

from django.urls import path

from controlplane.fleet import api

urlpatterns = [
    path("pools", api.Pools.as_view()),
    path("pools/<str:name>", api.OnePool.as_view()),
    path("pools/<str:name>/desired", api.Desired.as_view()),
    path("tokens", api.Tokens.as_view()),
    path("tokens/<token:token_id>", api.OneToken.as_view()),
    path("enrol", api.Enrol.as_view()),
    path("digests", api.Digests.as_view()),
    *(
        path(f"digests/<digest:digest_id>/{word}", api.DigestDecision.as_view(), {"decision": word})
        for word in api.DECISIONS
    ),
    path("nodes/<path:name>/models", api.NodeModels.as_view()),
    *(
        path(f"nodes/<path:name>/{word}", api.NodeAction.as_view(), {"action": word})
        for word in api.ACTIONS
    ),
]
