"""Amounts of money as people type them, and what is wrong with a form, told on the next page."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from controlplane.billing.documents.text import usd_read


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


def say_wrong(request: HttpRequest, error: ValidationError) -> None:
    for field, told in error.message_dict.items():
        messages.error(request, f"{field.replace('_', ' ').capitalize()}: {' '.join(told)}")
