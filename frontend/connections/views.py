"""Connections to hosted providers, for staff: accounts, keys, models with prices, what is spent.

Models and prices are shown whole before they apply.
"""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from controlplane.billing.margin.api import month_bounds
from controlplane.billing.months.periods import period_of
from controlplane.connections import services
from controlplane.connections.keys import KEYS_ACTIVE_MAX, key_add, key_retire
from controlplane.connections.models import Connection, ProviderKind
from controlplane.connections.offers import OFFERS_MAX, connection_remove, offers_set
from controlplane.connections.pricelist import price_list_of
from controlplane.connections.probe import ProbeOutcome, connection_test
from controlplane.connections.selectors import (
    ConnectionView,
    connection_get,
    connection_list,
    connection_view,
)
from controlplane.connections.spend import amounts_of_csv, amounts_set, spend_read
from controlplane.core.permissions import Action
from controlplane.fleet.catalogue import offer_list
from controlplane.kernel.ids import uuid_asked
from controlplane.kernel.money import usd_from_micro
from frontend.connections.forms import (
    AmountsForm,
    ConnectionForm,
    ConnectionKeyForm,
    NewConnectionForm,
    OfferForm,
    candidates_of,
    connection_values,
    offer_forms,
    offers_read,
    offers_wrong,
    wanted_of,
)
from frontend.shared.access import Viewer, page, show
from frontend.shared.asked import in_time
from frontend.shared.formats import percent
from frontend.shared.forms import made_by
from frontend.shared.months import month_from
from frontend.shared.stepup import stepped_up, unseen
from frontend.shared.token_prices import STATES, rates_of

PLACE = "connections/<connection:connection_id>"
OUTCOMES = {
    "": ("off", "not tested yet"),
    ProbeOutcome.OK: ("ok", "key works"),
    ProbeOutcome.REFUSED: ("bad", "key refused"),
    ProbeOutcome.NOT_FOUND: ("bad", "nothing at this URL"),
    ProbeOutcome.LIMITED: ("warn", "limited by the provider"),
    ProbeOutcome.FAILED: ("bad", "the provider failed"),
    ProbeOutcome.UNREACHABLE: ("bad", "unreachable"),
    ProbeOutcome.UNREADABLE: ("bad", "unexpected response"),
    ProbeOutcome.NO_KEY: ("warn", "no key"),
}


class OfferLook(NamedTuple):
    """One model before it is saved: rates as `input / cached / output`, the least margin."""

    model: str
    upstream: str
    purchase: str
    before: str
    sale: str
    margin: str


@page("connections", Action.CATALOG_MANAGE, "GET")
def connections(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    return _index(request, viewer, NewConnectionForm())


def _index(request: HttpRequest, viewer: Viewer, form: NewConnectionForm) -> HttpResponse:
    found = connection_list(actor=viewer.user, now=timezone.now())
    rows = [(view, _state(view)) for view in found]
    context = {"rows": rows, "form": form}
    return show(request, viewer, "connections", "connections/page.html", context, form.errors)


def _state(view: ConnectionView) -> tuple[str, str]:
    connection = view.connection
    if not connection.enabled:
        return "off", "disabled"
    lacks = not view.keys and connection.kind != ProviderKind.OTHER
    return OUTCOMES[ProbeOutcome.NO_KEY if lacks else connection.outcome]


@page("connections/add", Action.CATALOG_MANAGE, "POST")
@unseen
@stepped_up
def connection_add(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Create a connection with its first key, and go to its page."""
    form = NewConnectionForm(request.POST.dict())

    @transaction.atomic
    def make() -> Connection:
        made = services.connection_create(actor=viewer.user, draft=form.draft())
        if form.cleaned_data["secret"]:
            secret = form.cleaned_data["secret"]
            key_add(actor=viewer.user, connection=made, secret=secret)
        return made

    made = made_by(form, make)
    if made is None:
        return _index(request, viewer, form)
    messages.success(request, f"{made.name} is added. Test its key, then choose its models.")
    return redirect("connection", connection_id=made.id)


@page(PLACE, Action.CATALOG_MANAGE, "GET", name="connection")
def connection_detail(
    request: HttpRequest, viewer: Viewer, connection_id: uuid.UUID
) -> HttpResponse:
    return _detail(request, viewer, _view(viewer, connection_id))


@page(f"{PLACE}/act", Action.CATALOG_MANAGE, "POST")
@unseen
@stepped_up
def connection_act(request: HttpRequest, viewer: Viewer, connection_id: uuid.UUID) -> HttpResponse:
    """One of `ACTS`; what is wrong is told in its form."""
    act = ACTS.get(request.POST.get("act", ""))
    if act is None:
        raise Http404
    shown = act(request, viewer, _view(viewer, connection_id))
    return redirect("connection", connection_id=connection_id) if shown is None else shown


def _view(viewer: Viewer, connection_id: uuid.UUID) -> ConnectionView:
    found = connection_get(actor=viewer.user, connection_id=connection_id)
    return connection_view(found, timezone.now())


def _detail(
    request: HttpRequest, viewer: Viewer, view: ConnectionView, **shown: Any
) -> HttpResponse:
    """A connection with its forms: those `shown` as typed."""
    states = {
        offer.model.id: STATES[offer.state]
        for offer in offer_list(now=timezone.now(), enabled_only=False)
    }
    context = {
        "view": view,
        "connection": view.connection,
        "state": _state(view),
        "served": [(one, states[one.row.model_id]) for one in view.models],
        "form": ConnectionForm(initial=connection_values(view.connection)),
        "key": ConnectionKeyForm(),
        "keys_full": len(view.keys) >= KEYS_ACTIVE_MAX,
        "candidates": candidates_of(view),
        "amounts": AmountsForm(),
        **_spend(request, viewer, view.connection),
        "shipped": price_list_of(view.connection.kind),
    }
    wrong = any(
        each.errors
        for value in shown.values()
        for each in (value if isinstance(value, list) else [value])
        if isinstance(each, forms.Form)
    )
    context |= shown
    return show(request, viewer, "connections", "connections/connection.html", context, wrong)


def _spend(request: HttpRequest, viewer: Viewer, connection: Connection) -> dict[str, Any]:
    """The month that the URL asks for, reconciled; without lines where that took too long."""
    now = datetime.now(UTC)
    period, complaint = month_from(request.GET, now)
    start, end = month_bounds(period, now)
    found = in_time(
        lambda: spend_read(actor=viewer.user, connection=connection, start=start, end=end)
    )
    after = period.after if period < period_of(now) else None
    return {"period": period, "after": after, "complaint": complaint, "spend": found}


def _amounts(request: HttpRequest, viewer: Viewer, view: ConnectionView) -> HttpResponse | None:
    form = AmountsForm(request.POST.dict())

    def enter() -> int:
        drafts = amounts_of_csv(form.cleaned_data["csv"])
        try:
            return amounts_set(actor=viewer.user, connection=view.connection, drafts=drafts)
        except ValidationError as error:
            raise ValidationError(
                [f"{name}: {told}" for name, texts in error.message_dict.items() for told in texts]
            ) from error

    entered = made_by(form, enter)
    if entered is None:
        return _detail(request, viewer, view, amounts=form)
    messages.success(request, f"{entered} amounts are saved.")
    return None


def _change(request: HttpRequest, viewer: Viewer, view: ConnectionView) -> HttpResponse | None:
    form = ConnectionForm(request.POST.dict())

    def change() -> bool:
        services.connection_change(
            actor=viewer.user, connection=view.connection, draft=form.draft()
        )
        return True

    if made_by(form, change) is None:
        return _detail(request, viewer, view, form=form)
    messages.success(request, "The connection is changed. It applies within a few seconds.")
    return None


def _switch(request: HttpRequest, viewer: Viewer, view: ConnectionView) -> None:
    enabled = not view.connection.enabled
    services.connection_enable(actor=viewer.user, connection=view.connection, enabled=enabled)
    words = "is enabled" if enabled else "is disabled; requests for its models are refused"
    messages.success(request, f"{view.connection.name} {words}.")


def _remove(request: HttpRequest, viewer: Viewer, view: ConnectionView) -> HttpResponse:
    connection_remove(actor=viewer.user, connection=view.connection)
    messages.success(request, f"{view.connection.name} is removed and its keys are deleted.")
    return redirect("connections")


def _key(request: HttpRequest, viewer: Viewer, view: ConnectionView) -> HttpResponse | None:
    form = ConnectionKeyForm(request.POST.dict())

    def add() -> object:
        secret = form.cleaned_data["secret"]
        return key_add(actor=viewer.user, connection=view.connection, secret=secret)

    if made_by(form, add) is None:
        return _detail(request, viewer, view, key=form)
    messages.success(request, "The key is added; the previous one works until you retire it.")
    return None


def _retire(request: HttpRequest, viewer: Viewer, view: ConnectionView) -> None:
    key_id = uuid_asked(request.POST.get("key", ""), "connectionkey", Http404())
    key = key_retire(actor=viewer.user, connection=view.connection, key_id=key_id)
    messages.success(request, f"The key …{key.shown} is deleted.")


def _test(request: HttpRequest, viewer: Viewer, view: ConnectionView) -> None:
    found = connection_test(actor=viewer.user, connection=view.connection)
    tell = messages.success if found.outcome == ProbeOutcome.OK else messages.error
    tell(request, found.words)


def _choose(request: HttpRequest, viewer: Viewer, view: ConnectionView) -> HttpResponse:
    """The chosen models as forms; nothing is changed yet."""
    wanted = wanted_of(request.POST)
    if len(wanted) > OFFERS_MAX:
        messages.error(request, f"A connection can have up to {OFFERS_MAX} models.")
        wanted = wanted[:OFFERS_MAX]
    offers = offer_forms(view, wanted)
    return _detail(request, viewer, view, offers=offers, offering=True, **_withdrawn(view, wanted))


def _offer(request: HttpRequest, viewer: Viewer, view: ConnectionView) -> HttpResponse | None:
    """Save models and prices, once the sender has seen what changes."""
    offers = offers_read(request.POST.dict())
    withdrawn = _withdrawn(view, [form.data[form.add_prefix("upstream")] for form in offers])
    shown = {"offers": offers, "offering": True, **withdrawn}
    # Each is asked, so that all that is wrong is told at once.
    if not all(tuple(form.is_valid() for form in offers)):
        return _detail(request, viewer, view, **shown)
    if "looked" not in request.POST:
        return _detail(request, viewer, view, **shown, looks=_looks(view, offers))
    drafts = [form.draft() for form in offers]
    try:
        offers_set(actor=viewer.user, connection=view.connection, drafts=drafts)
    except ValidationError as error:
        offers_wrong(offers, error)
        return _detail(request, viewer, view, **shown)
    messages.success(request, "Models and prices are saved. They are served within a few seconds.")
    return None


def _withdrawn(view: ConnectionView, wanted: list[str]) -> dict[str, Any]:
    gone = [one.row.model.name for one in view.models if one.row.upstream not in wanted]
    return {"withdrawn": gone}


def _looks(view: ConnectionView, offers: list[OfferForm]) -> list[OfferLook]:
    sales = {one.row.model.name: one.sale for one in view.models}
    found = []
    for form in offers:
        draft = form.draft()
        assert draft.sale is not None
        bought = rates_of(draft.purchase) if draft.purchase else {}
        sold = rates_of(draft.sale)
        before = sales.get(draft.model)
        found.append(
            OfferLook(
                draft.model,
                draft.upstream,
                _three(bought),
                _three(rates_of(before)) if before else "",
                _three(sold),
                _least_margin(bought, sold) if bought else "",
            )
        )
    return found


def _three(rates: dict[str, int]) -> str:
    return " / ".join(usd_from_micro(rate) for rate in rates.values())


def _least_margin(bought: dict[str, int], sold: dict[str, int]) -> str:
    """Of the kinds of tokens the one that earns least, as a share of its price."""
    pairs = [(sold[name] - bought[name], sold[name]) for name in sold]
    if any(not price and gain < 0 for gain, price in pairs):
        return "free"
    gain, price = min(
        (pair for pair in pairs if pair[1]), key=lambda pair: pair[0] / pair[1], default=(0, 0)
    )
    sign = "−" if gain < 0 else ""
    return sign + percent(abs(gain), price) if price else "free"


ACTS: dict[str, Callable[[HttpRequest, Viewer, ConnectionView], HttpResponse | None]] = {
    "change": _change,
    "switch": _switch,
    "remove": _remove,
    "key": _key,
    "retire": _retire,
    "test": _test,
    "choose": _choose,
    "offer": _offer,
    "amounts": _amounts,
}
