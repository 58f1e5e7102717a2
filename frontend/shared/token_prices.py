"""Prices of tokens as people type and compare them, and how the states of models are shown."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from controlplane.kernel.money import micro_from_usd

USD_CHARS_MAX = 20
RATES = {"input_pico": "Input", "cached_pico": "Cached input", "output_pico": "Output"}
STATES = {
    "ready": ("ok", "ready"),
    "no_node": ("warn", "no node serves it"),
    "no_price": ("warn", "no price yet"),
    "off": ("off", "disabled"),
}


class UsdField(forms.CharField):
    """Dollars per million tokens; its value is in micro-USD, which is pico-USD per token."""

    def __init__(self, label: str, *, required: bool = True) -> None:
        super().__init__(label=label, max_length=USD_CHARS_MAX, required=required)

    def clean(self, value: Any) -> int | None:
        text = super().clean(value)
        try:
            return micro_from_usd(text) if text else None
        except ValueError as error:
            raise ValidationError("Must be dollars per million tokens, such as 0.15.") from error


class RatesForm(forms.Form):
    """What a million tokens costs."""

    input_pico = UsdField(RATES["input_pico"])
    cached_pico = UsdField(RATES["cached_pico"])
    output_pico = UsdField(RATES["output_pico"])

    def rates(self) -> dict[str, int]:
        """What a valid form asks for, as drafts have it."""
        return {name: self.cleaned_data[name] for name in RATES}


def rates_of(price: Any) -> dict[str, int]:
    """Micro-USD per million tokens, by the form's names."""
    return {name: getattr(price, name) for name in RATES}
