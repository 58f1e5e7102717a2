"""Amounts of money as people type them, and what is wrong with a form, told on the next page."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from controlplane.billing.documents.text import usd_read
from controlplane.core.answers import PageAsk, page_ask
from controlplane.core.jobs.once import AlreadyCreated
from controlplane.core.permissions import Action
from frontend.shared.access import Viewer, page
from frontend.shared.refused_form import refused_keep
from frontend.shared.stepup import stepped_up

Made = TypeVar("Made")
P = ParamSpec("P")
Changing = Callable[Concatenate[HttpRequest, Viewer, P], HttpResponse | str]
View = Callable[Concatenate[HttpRequest, Viewer, P], HttpResponse]


def nano_of(text: str, field: str) -> int:
    """Nano-USD of `1234.50`; raises ValidationError that names the field."""
    try:
        return usd_read(text)
    except ValueError:
        told = "Must be an amount in US dollars, such as 25.00."
        raise ValidationError({field: told}) from None


class JsonField(forms.CharField):
    """What JSON says, an empty list where it may be left out; the service checks the rest."""

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        try:
            return msgspec.json.decode(text or "[]")
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValidationError(f"Invalid JSON: {error}.") from error


def cleaned(form: forms.Form) -> dict[str, Any]:
    if not form.is_valid():
        raise ValidationError(form.errors.as_data())
    return form.cleaned_data


def page_asked(request: HttpRequest, prefix: str) -> PageAsk:
    """Which page of a list the URL asks for; raises Http404 where it cannot be read."""
    try:
        return page_ask(request.GET.dict(), prefix)
    except ValidationError as error:
        raise Http404 from error


def made_by(form: forms.Form, make: Callable[[], Made]) -> Made | None:
    """What comes of a form; None where something is wrong, which it tells beside its fields."""
    try:
        return make() if form.is_valid() else None
    except ValidationError as error:
        form.add_error(None, error)
        return None


def says_wrong(to: str, *names: str) -> Callable[[Changing[P]], View[P]]:
    """What the view finds wrong is told on the page `to`, which takes these of its arguments.

    There is told, too, what it has done, where it answers that in words, and that a form was sent
    before and has made its one thing.
    """

    def wrap(view: Changing[P]) -> View[P]:
        @wraps(view)
        def told(
            request: HttpRequest, viewer: Viewer, /, *args: P.args, **kwargs: P.kwargs
        ) -> HttpResponse:
            try:
                done = view(request, viewer, *args, **kwargs)
                if isinstance(done, HttpResponse):
                    return done
                messages.success(request, done)
            except ValidationError as error:
                refused_keep(request, error)
            except AlreadyCreated:
                messages.info(request, "This was already created; its secret is not shown again.")
            kept = {name: kwargs[name] for name in names}
            return HttpResponseRedirect(reverse(to, kwargs=kept))

        return told

    return wrap


def changes(
    address: str, action: Action | None, to: str, *names: str, confirmed: bool = False
) -> Callable[[Changing[P]], View[P]]:
    """A page that takes a form, and tells on the page `to` what is wrong or done.

    `confirmed`: only in a session that its owner has confirmed lately.
    """

    def wrap(view: Changing[P]) -> View[P]:
        told = says_wrong(to, *names)(view)
        page(address, action, "POST")(stepped_up(told) if confirmed else told)
        return told

    return wrap
