"""Forms of connections and of the models that are taken from them; prices in dollars a million."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from controlplane.catalog.services import PurchaseDraft
from controlplane.connections.models import URL_CHARS_MAX, Connection, ProviderKind
from controlplane.connections.offers import OFFERS_MAX, OfferDraft
from controlplane.connections.pricelist import price_list_of
from controlplane.connections.selectors import ConnectionView, Served
from controlplane.connections.services import URL_DEFAULTS, ConnectionDraft
from controlplane.connections.spend import CSV_CHARS_MAX
from controlplane.kernel.money import usd_from_micro
from frontend.shared.token_prices import RATES, UsdField, rates_of

SECRET_CHARS_MAX = 600
OTHERS_CHARS_MAX = 5_000
PURCHASE, SALE = "purchase", "sale"
_PLACE = re.compile(r"models\[(\d+)\]\.?(.*)")


class ConnectionForm(forms.Form):
    """A connection; the service checks everything again."""

    name = forms.CharField(max_length=50)
    kind = forms.ChoiceField(choices=ProviderKind.choices)
    url = forms.CharField(max_length=URL_CHARS_MAX, required=False)
    api_version = forms.CharField(max_length=40, required=False)
    region = forms.CharField(max_length=50, required=False)

    def draft(self) -> ConnectionDraft:
        """What a valid form asks for; without a URL that of the provider."""
        given = dict(self.cleaned_data)
        given["url"] = given["url"] or URL_DEFAULTS.get(given["kind"], "")
        return ConnectionDraft(**{name: given[name] for name in ConnectionDraft.__struct_fields__})


class ConnectionKeyForm(forms.Form):
    """A provider's key; it is never shown again, also where it is refused."""

    secret = forms.CharField(
        max_length=SECRET_CHARS_MAX, widget=forms.PasswordInput(attrs={"autocomplete": "off"})
    )


class NewConnectionForm(ConnectionForm, ConnectionKeyForm):
    """The first form: a connection with its key, which some servers of one's own do without."""

    secret = forms.CharField(
        max_length=SECRET_CHARS_MAX,
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
    )


class AmountsForm(forms.Form):
    """What the provider charges, as CSV."""

    csv = forms.CharField(max_length=CSV_CHARS_MAX, strip=False)


class OfferForm(forms.Form):
    """One model with its name here, sizes and prices."""

    upstream = forms.CharField(max_length=100, widget=forms.HiddenInput)
    model = forms.CharField(max_length=100)
    context_window = forms.IntegerField(min_value=2)
    output_max = forms.IntegerField(min_value=1)
    vision = forms.BooleanField(required=False)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for whose in (PURCHASE, SALE):
            for name, label in RATES.items():
                self.fields[f"{whose}_{name}"] = UsdField(label, required=whose == SALE)

    def clean(self) -> dict[str, Any]:
        """All three prices that it costs, or none of them."""
        names = [f"{PURCHASE}_{name}" for name in RATES]
        lacking = [name for name in names if self.cleaned_data.get(name) is None]
        if len(lacking) < len(names):
            for name in lacking:
                if name not in self.errors:
                    self.add_error(name, "Enter all three prices, or leave all blank.")
        return self.cleaned_data

    @property
    def prices(self) -> list[tuple[str, forms.BoundField]]:
        """Fields with their words: what a kind of tokens costs, beside what it is sold for."""
        words = {PURCHASE: "Cost", SALE: "Price"}
        return [
            (f"{words[whose]}: {label}", self[f"{whose}_{name}"])
            for name, label in RATES.items()
            for whose in words
        ]

    def draft(self) -> OfferDraft:
        """What a valid form asks for."""
        given = self.cleaned_data
        plain = ("upstream", "model", "context_window", "output_max", "vision")
        rates: dict[str, Any] = {
            whose: PurchaseDraft(**{name: given[f"{whose}_{name}"] for name in RATES})
            for whose in (PURCHASE, SALE)
            if given[f"{whose}_input_pico"] is not None
        }
        return OfferDraft(**{name: given[name] for name in plain}, **rates)


@dataclass(frozen=True)
class Candidate:
    """A model that may be taken, and whether it is."""

    upstream: str
    chosen: bool


def candidates_of(view: ConnectionView) -> list[Candidate]:
    """Models that it serves, that its provider listed, or whose prices are shipped."""
    served = {one.row.upstream for one in view.models}
    shipped = price_list_of(view.connection.kind)
    known = {one.upstream for one in shipped.models} if shipped else set()
    names = served | known | set(view.connection.listed)
    order = sorted(names, key=lambda name: (name not in served, name not in known, name))
    return [Candidate(name, name in served) for name in order]


def wanted_of(given: Any) -> list[str]:
    """Names that were ticked or typed, each once."""
    typed = given.get("others", "")[:OTHERS_CHARS_MAX].replace(",", " ").split()
    return list(dict.fromkeys([*given.getlist("upstream"), *typed]))


def offer_forms(view: ConnectionView, wanted: Sequence[str]) -> list[OfferForm]:
    """A form for each, filled with what is so, or with what the shipped list says."""
    served = {one.row.upstream: one for one in view.models}
    shipped = price_list_of(view.connection.kind)
    listed = {one.upstream: one for one in shipped.models} if shipped else {}
    found = []
    for place, name in enumerate(wanted):
        if name in served:
            values = _served_values(served[name])
        elif name in listed:
            values = {**_rates_values(listed[name].rates, listed[name].rates)}
            for each in ("context_window", "output_max", "vision"):
                values[each] = getattr(listed[name], each)
        else:
            values = {}
        initial = {"upstream": name, "model": name, **values}
        found.append(OfferForm(initial=initial, prefix=f"m{place}"))
    return found


def offers_read(given: Mapping[str, str]) -> list[OfferForm]:
    """The forms that were sent back, as many as there are."""
    places: Iterable[int] = range(OFFERS_MAX + 1)
    return [OfferForm(given, prefix=f"m{n}") for n in places if f"m{n}-upstream" in given]


def offers_wrong(offers: Sequence[OfferForm], error: ValidationError) -> None:
    """What a service found wrong, beside the fields it names (`models[0].sale.cached_pico`)."""
    for name, told in error.message_dict.items():
        found = _PLACE.match(name)
        form = offers[int(found[1])] if found else offers[0]
        field = found[2].replace(".", "_") if found else ""
        form.add_error(field if field in form.fields else None, told)


def _served_values(one: Served) -> dict[str, Any]:
    model = one.row.model
    return {
        "model": model.name,
        "context_window": model.context_window,
        "output_max": model.output_tokens_max,
        "vision": model.images_max > 0,
        **_rates_values(
            rates_of(one.purchase) if one.purchase else {}, rates_of(one.sale) if one.sale else {}
        ),
    }


def _rates_values(purchase: Mapping[str, int], sale: Mapping[str, int]) -> dict[str, Any]:
    return {
        f"{whose}_{name}": usd_from_micro(rate)
        for whose, rates in ((PURCHASE, purchase), (SALE, sale))
        for name, rate in rates.items()
    }


def connection_values(connection: Connection) -> dict[str, Any]:
    return {name: getattr(connection, name) for name in ConnectionForm.base_fields}
