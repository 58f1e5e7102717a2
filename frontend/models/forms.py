"""Forms of models and their prices, in dollars per million tokens."""

from dataclasses import fields
from typing import Any

from django import forms

from controlplane.catalog.models import Model, PriceVersion, Task
from controlplane.catalog.selectors import pool_list
from controlplane.catalog.services import ModelDraft, PriceDraft
from controlplane.composed.new_models import NewModel, Server
from controlplane.kernel.money import usd_from_micro
from controlplane.kernel.price import PERMILLE
from frontend.shared.formats import multiplier
from frontend.shared.token_prices import RATES, RatesForm, UsdField, rates_of

SOURCE_CHARS_MAX = 300
SECRET_CHARS_MAX = 600
SERVERS = {
    Server.NODE: "a node that I start",
    Server.HUB: "my hosts, from the hub",
    Server.FOLDER: "my hosts, from a folder there",
    Server.URL: "an OpenAI-compatible server",
}
MULTIPLIERS = {
    "batch_permille": "Low-priority multiplier",
    "priority_permille": "High-priority multiplier",
}


class MultiplierField(forms.DecimalField):
    """What a price is multiplied by, such as 0.5; its value is in thousandths."""

    def clean(self, value: Any) -> int:
        return int(super().clean(value) * PERMILLE)


class PriceForm(RatesForm):
    """A price for all, or for one project, from now or later on; what it is multiplied by for other
    priorities.
    """

    batch_permille, priority_permille = (
        MultiplierField(label=label, min_value=0, max_digits=9, decimal_places=3, initial=1)
        for label in MULTIPLIERS.values()
    )
    project = forms.CharField(required=False, max_length=64)
    effective_from = forms.DateTimeField(required=False)

    def draft(self) -> PriceDraft:
        """What a valid form asks for."""
        times = {name: self.cleaned_data[name] for name in MULTIPLIERS}
        return PriceDraft(**self.rates(), **times)


class AliasForm(forms.Form):
    """A further name of a model."""

    alias = forms.CharField(max_length=100)


class ModelForm(forms.Form):
    """A model of the catalogue; the service checks everything again."""

    name = forms.CharField(max_length=100)
    task = forms.ChoiceField(choices=Task.choices)
    pool = forms.ChoiceField()
    context_window = forms.IntegerField(min_value=1)
    output_tokens_default = forms.IntegerField(min_value=0, initial=0)
    output_tokens_max = forms.IntegerField(min_value=0, initial=0)
    images_max = forms.IntegerField(min_value=0, initial=0)
    owner = forms.CharField(max_length=100, initial="sluice")

    def __init__(self, given: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(given, **options)
        self.fields["pool"].choices = [(pool.name, pool.name) for pool in pool_list()]  # type: ignore[attr-defined]

    def draft(self, known: Model | None = None) -> ModelDraft:
        """What a valid form asks for; what it does not show stays as it is."""
        names = [each.name for each in fields(ModelDraft)]
        kept = {name: getattr(known, name) for name in names} if known else {}
        given = {name: self.cleaned_data[name] for name in names if name in self.cleaned_data}
        return ModelDraft(**{**kept, **given})


class NewModelForm(ModelForm):
    """A model with its price, if it has one yet, and with what is to serve it."""

    server = forms.ChoiceField(choices=list(SERVERS.items()))
    source = forms.CharField(max_length=SOURCE_CHARS_MAX, required=False)
    upstream = forms.CharField(max_length=100, required=False)
    secret = forms.CharField(
        max_length=SECRET_CHARS_MAX,
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
    )
    input_pico, cached_pico, output_pico = (
        UsdField(label, required=False) for label in RATES.values()
    )

    def clean(self) -> dict[str, Any]:
        """All three prices or none of them, and a place where something else serves it."""
        lacking = [name for name in RATES if self.cleaned_data.get(name) is None]
        if len(lacking) < len(RATES):
            for name in lacking:
                if name not in self.errors:
                    self.add_error(name, "Enter all three prices, or leave all blank.")
        given = self.cleaned_data
        if given.get("server") not in (None, Server.NODE) and not given.get("source"):
            self.add_error("source", "Enter where the model is.")
        return given

    def new(self) -> NewModel:
        """What a valid form asks for."""
        given = self.cleaned_data
        rates = {name: given[name] for name in RATES if given[name] is not None}
        return NewModel(
            draft=self.draft(),
            price=PriceDraft(**rates) if rates else None,
            server=Server(given["server"]),
            **{name: given[name] for name in ("source", "upstream", "secret")},
        )


def model_values(model: Model) -> dict[str, Any]:
    return {name: getattr(model, name) for name in ModelForm.base_fields}


def price_values(price: PriceVersion | None) -> dict[str, Any]:
    """A price as its form takes it; empty where there is none yet."""
    if price is None:
        return {}
    told: dict[str, Any] = {name: usd_from_micro(rate) for name, rate in rates_of(price).items()}
    return told | {name: multiplier(getattr(price, name)) for name in MULTIPLIERS}
