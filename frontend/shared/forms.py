"""Amounts of money as people type them, and what is wrong with a form, told on the next page."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from controlplane.billing.documents.text import usd_read
from frontend.shared.access import Viewer

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, Viewer, P], HttpResponse]


def nano_of(text: str, field: str) -> int:
    """Nano-USD of `1234.50`; raises ValidationError that names the field."""
    try:
        return usd_read(text)
    except ValueError:
        told = "Must be an amount in US dollars, such as 25.00."
        raise ValidationError({field: told}) from None


def cleaned(form: forms.Form) -> dict[str, Any]:
    """The values of a form; raises ValidationError by field."""
    if not form.is_valid():
        raise ValidationError(form.errors.as_data())
    return form.cleaned_data


def says_wrong(to: str, *names: str) -> Callable[[View[P]], View[P]]:
    """What the view finds wrong is told on the page `to`, which takes these of its arguments."""

    def wrap(view: View[P]) -> View[P]:
        @wraps(view)
        def told(
            request: HttpRequest, viewer: Viewer, /, *args: P.args, **kwargs: P.kwargs
        ) -> HttpResponse:
            try:
                return view(request, viewer, *args, **kwargs)
            except ValidationError as error:
                for field, words in error.message_dict.items():
                    name = field.replace("_", " ").capitalize()
                    messages.error(request, f"{name}: {' '.join(words)}")
                kept = {name: kwargs[name] for name in names}
                return HttpResponseRedirect(reverse(to, kwargs=kept))

        return told

    return wrap
