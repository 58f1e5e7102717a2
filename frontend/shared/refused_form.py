"""A form that was refused: its page shows it again with what was typed and what is wrong beside it.

It is kept sealed in the session for the next page, which `pages.js` opens it on.
"""

from typing import Any

import msgspec
from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from controlplane.core.seal import BrokenSeal, sealed, unsealed
from frontend.shared.stepup import CSRF_FIELD, FORM_BYTES_MAX, SECRET_FIELDS

REFUSED = "refused_form"


def refused_keep(request: HttpRequest, error: ValidationError) -> None:
    """Keep what is wrong for the next page, with what was typed unless that is secret or large."""
    posted = {name: values for name, values in request.POST.lists() if name != CSRF_FIELD}
    secret = SECRET_FIELDS & posted.keys() or request.FILES
    whole = {"path": request.path, "fields": posted, "errors": error.message_dict}
    text = msgspec.json.encode(whole)
    if secret or len(text) > FORM_BYTES_MAX:
        text = msgspec.json.encode({**whole, "fields": {}})
    request.session[REFUSED] = sealed(settings.FACTOR_KEY, text, _place(request)).hex()


def refused_take(request: HttpRequest) -> dict[str, Any] | None:
    """The refused form, once: `path`, `fields`, `errors`, and their lines `told`; None for none."""
    kept = request.session.pop(REFUSED, None)
    if kept is None:
        return None
    try:
        text = unsealed(
            settings.FACTOR_KEY, bytes.fromhex(kept), _place(request), settings.FACTOR_KEYS_BEFORE
        )
    except (BrokenSeal, ValueError):
        return None
    found: dict[str, Any] = msgspec.json.decode(text)
    told = {name.replace("_", " ").capitalize(): words for name, words in found["errors"].items()}
    return {**found, "told": [f"{name}: {' '.join(words)}" for name, words in told.items()]}


def _place(request: HttpRequest) -> bytes:
    return f"refused:{request.user.pk}".encode()
