"""For developers: the base URL, own keys, snippets to copy, and the API to read and to try."""

from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.catalog.models import Task
from controlplane.catalog.selectors import model_list
from controlplane.core.permissions import Action
from controlplane.tenants.selectors import apikey_list
from frontend.shared.access import Viewer, page, show
from frontend.shared.addresses import gateway_url, page_url
from frontend.shared.snippets import SNIPPETS, Snippet

KEYS_SHOWN_MAX = 10
MODEL_UNKNOWN = "MODEL"
SYSTEM, USER = "You are a helpful assistant.", "Say hello."


class Address(NamedTuple):
    """One operation of the gateway."""

    method: str
    path: str
    words: str


ADDRESSES = (
    Address("POST", "/v1/chat/completions", "Chat completion, streamed or not"),
    Address("POST", "/v1/completions", "Text completion, streamed or not"),
    Address("POST", "/v1/responses", "Chats in the shape of OpenAI's Responses API"),
    Address("POST", "/v1/embeddings", "Embeddings for texts"),
    Address("POST", "/v1/rerank", "Documents ordered by how well they answer a query"),
    Address("POST", "/v1/score", "Scores of pairs of texts"),
    Address("POST", "/v1/moderations", "Whether texts are abusive"),
    Address("POST", "/v1/tokenize", "Token ids of a prompt or of messages"),
    Address("GET", "/v1/models", "Models that your key may use"),
    Address("GET", "/v1/key", "Limits of your key, and the remainder"),
)


def filled(snippet: Snippet, *, base: str, model: str) -> Snippet:
    """A snippet ready to run; texts are JSON strings, which all three languages read."""
    values = {"BASE": base, "MODEL": f'"{model}"', "SYSTEM": f'"{SYSTEM}"', "USER": f'"{USER}"'}
    text = snippet.text
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return snippet._replace(text=text)


@page("developers", Action.KEY_VIEW, "GET")
def api_page(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Everything that a program needs to call a model, on one page."""
    base, now = gateway_url(request), timezone.now()
    models = [one.name for one in model_list(enabled_only=True) if one.task == Task.GENERATE]
    model = models[0] if models else MODEL_UNKNOWN
    own = [
        key
        for key in apikey_list(user=viewer.user, organization_id=viewer.organization.id)
        if key.created_by_id == viewer.user.id and key.state(now) == "active"
    ]
    context = {
        "base": base,
        "pages": page_url(request),
        "models": models,
        "keys": own[:KEYS_SHOWN_MAX],
        "keys_more": max(0, len(own) - KEYS_SHOWN_MAX),
        "snippets": [filled(one, base=base, model=model) for one in SNIPPETS],
        "addresses": ADDRESSES,
    }
    return show(request, viewer, "api_page", "developers/api.html", context)


@page("developers/api", Action.ORGANIZATION_VIEW, "GET")
def api_docs(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Every operation under /api/ and /v1/organization/, to read and to try."""
    return render(request, "developers/api_docs.html", {"viewer": viewer, "here": "api_page"})
