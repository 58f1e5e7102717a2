"""`stepped_up`: a view that asks for password or second factor where that was not given lately.

Use it on views of money and secrets, inside or outside `page`. A form that was sent is kept in the
session, sealed, and sent again once its owner has confirmed. An operation of the API says so by
`operation(step_up=True)`.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from controlplane.core.api import stepup
from controlplane.core.permissions import Action
from controlplane.core.seal import BrokenSeal, sealed, unsealed
from controlplane.kernel.clock import wall_s
from controlplane.tenants.models import User
from controlplane.tenants.sign_in.factors import has_factors
from frontend.shared.access import Viewer, page

NOT_DONE = "Nothing was changed yet. Confirm it's you, then submit the form again."
KEPT = "Nothing was changed yet. Confirm it's you, and your action will continue automatically."
# A session is a row of a table: what is larger has to be typed again.
FORM_BYTES_MAX = 64 * 1024
FORM = "kept_form"
CSRF_FIELD = "csrfmiddlewaretoken"
# A form with one of these shows who somebody is: it is never stored.
SECRET_FIELDS = frozenset({"password", "again", "before", "code", "passkey", "secret"})
SAFE_METHODS = frozenset({"GET", "HEAD"})
P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]
Shown = Callable[Concatenate[HttpRequest, Viewer, P], HttpResponse]
Seen = TypeVar("Seen", bound=Callable[..., Any])


@dataclass(frozen=True)
class KeptForm:
    """A form that waits for its sender's confirmation: where it goes, and what is in it.

    `came_from` is the path of the page that it was on; `at_s` when it was sent, Unix seconds.
    """

    id: str
    path: str
    came_from: str
    fields: str
    at_s: float

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names and values in the order of the form."""
        found = QueryDict(self.fields).lists()
        return [(name, value) for name, values in found for value in values]


def stepped_up(view: View[P]) -> View[P]:
    """The view for a session confirmed lately; for others the page that confirms it."""

    return _door(view, lambda request: stepup.recently_confirmed(request.session), keeps=True)


def unseen(view: Seen) -> Seen:
    """For secrets, asked or told: no cache keeps an answer, no report of an error has any value."""
    return never_cache(sensitive_post_parameters()(sensitive_variables()(view)))


def secret_page(
    address: str, action: Action | None, *methods: str
) -> Callable[[Shown[P]], Callable[..., Any]]:
    """`page` for a session confirmed lately, which shows a secret in its one answer."""
    return lambda view: page(address, action, *methods)(unseen(stepped_up(view)))


def confirm_note(request: HttpRequest, at_s: float | None = None) -> None:
    """Note that the session's owner has confirmed, and drop a form that has waited too long."""
    stepup.session_confirm(request.session, at_s)
    _form_kept(request)


def form_take(request: HttpRequest, form_id: str) -> KeptForm | None:
    """The form of this id that the session keeps, for the last time; None where there is none."""
    form = _form_kept(request)
    if form is None or not secrets.compare_digest(form.id.encode(), form_id.encode()):
        return None
    del request.session[FORM]
    return form


def _form_kept(request: HttpRequest) -> KeptForm | None:
    """The form that the session keeps; one that is too old, or another user's, is dropped."""
    kept = request.session.get(FORM)
    if kept is None:
        return None
    try:
        read = unsealed(
            settings.FACTOR_KEY, bytes.fromhex(kept), _place(request), settings.FACTOR_KEYS_BEFORE
        )
        form = msgspec.json.decode(read, type=KeptForm)
    except (BrokenSeal, ValueError):
        form = None
    if form is None or not 0 <= wall_s() - form.at_s <= stepup.CONFIRMED_S_MAX:
        del request.session[FORM]
        return None
    return form


def _form_keep(request: HttpRequest) -> str:
    """Keep the form that was sent in place of any before; its id, "" where it cannot be kept."""
    # One before it that is too old goes even where this one cannot be kept.
    _form_kept(request)
    given = request.POST.copy()
    given.pop(CSRF_FIELD, None)
    fields = given.urlencode()
    if request.FILES or len(fields) > FORM_BYTES_MAX or SECRET_FIELDS & given.keys():
        return ""
    form = KeptForm(
        id=secrets.token_urlsafe(),
        path=request.get_full_path(),
        came_from=_came_from(request),
        fields=fields,
        at_s=wall_s(),
    )
    place, text = _place(request), msgspec.json.encode(form)
    request.session[FORM] = sealed(settings.FACTOR_KEY, text, place).hex()
    return form.id


def _place(request: HttpRequest) -> bytes:
    return f"form:{request.user.pk}".encode()


def stepped_up_or_first(view: View[P]) -> View[P]:
    """The same for views that add a second factor; the first is added without where nothing else
    could confirm: no password, no second factor, and a sign-in within the last 15 minutes.
    """

    def opens(request: HttpRequest) -> bool:
        return stepup.recently_confirmed(request.session) or _may_begin(request)

    # What they send shows who somebody is, or is asked for by a script.
    return _door(view, opens, keeps=False)


def _may_begin(request: HttpRequest) -> bool:
    user = request.user
    return (
        isinstance(user, User)
        and stepup.recently_begun(request.session)
        and not user.has_usable_password()
        and not has_factors(user=user)
    )


def _door(view: View[P], opens: Callable[[HttpRequest], bool], *, keeps: bool) -> View[P]:
    @wraps(view)
    def door(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        # Who is not signed in is sent there by the view itself.
        if not request.user.is_authenticated or opens(request):
            return view(request, *args, **kwargs)
        if request.method in SAFE_METHODS:
            return _to_confirm(request, request.get_full_path())
        form_id = _form_keep(request) if keeps else ""
        messages.warning(request, KEPT if form_id else NOT_DONE)
        again = f"{resolve_url('confirmed')}?{urlencode({'form': form_id})}"
        return _to_confirm(request, again if form_id else _came_from(request))

    return door


def _to_confirm(request: HttpRequest, next_path: str) -> HttpResponse:
    address = f"{resolve_url('confirm')}?{urlencode({'next': next_path})}"
    if request.headers.get("HX-Request") == "true":
        return HttpResponse(headers={"HX-Redirect": address})
    return HttpResponseRedirect(address)


def _came_from(request: HttpRequest) -> str:
    referrer = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(referrer, {request.get_host()}):
        return "/"
    parts = urlsplit(referrer)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path
