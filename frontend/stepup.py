"""`stepped_up`: a view that asks for password or second factor where that was not given lately.

Use it on views of money and secrets, inside or outside `page`. An operation of the API names the
methods that need it in `ApiView.step_up_methods`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec
from urllib.parse import urlencode, urlsplit

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import resolve_url
from django.utils.http import url_has_allowed_host_and_scheme

from controlplane.core.stepup import recently_confirmed

NOT_DONE = "Nothing was changed yet: confirm that it is you, then do it again."
SAFE_METHODS = frozenset({"GET", "HEAD"})
P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def stepped_up(view: View[P]) -> View[P]:
    """The view for a session confirmed lately; for others the page that confirms it."""

    @wraps(view)
    def door(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        # Who is not signed in is sent there by the view itself.
        if not request.user.is_authenticated or recently_confirmed(request.session):
            return view(request, *args, **kwargs)
        if request.method not in SAFE_METHODS:
            messages.warning(request, NOT_DONE)
        return _to_confirm(request)

    return door


def _to_confirm(request: HttpRequest) -> HttpResponse:
    address = f"{resolve_url('confirm')}?{urlencode({'next': _return_path(request)})}"
    if request.headers.get("HX-Request") == "true":
        return HttpResponse(headers={"HX-Redirect": address})
    return HttpResponseRedirect(address)


def _return_path(request: HttpRequest) -> str:
    """Where to go on: this page, or the one whose form was sent."""
    if request.method in SAFE_METHODS:
        return request.get_full_path()
    referrer = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(referrer, {request.get_host()}):
        return "/"
    parts = urlsplit(referrer)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path
