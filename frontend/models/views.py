"""Models: the catalogue for everybody; staff add, change, price and switch them off.

A price is shown beside the one in force before it is published.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.cache import patch_vary_headers

from controlplane.catalog import services
from controlplane.catalog.models import PriceVersion
from controlplane.catalog.selectors import price_list_all, version_in_force
from controlplane.changes.content import PriceEntry
from controlplane.changes.prices import PriceChanges
from controlplane.composed import new_models
from controlplane.connections.discard import model_discard, model_needs
from controlplane.connections.probe import ProbeOutcome, connection_test
from controlplane.connections.selectors import connection_of
from controlplane.core.permissions import Action
from controlplane.fleet.catalogue import Offer, offer_list
from controlplane.hosts.hubsearch import hub_search
from controlplane.hosts.selectors import deployment_list
from controlplane.kernel.ids import public_id
from controlplane.routing.aliases import alias_add, alias_remove, aliases_of
from controlplane.tenants.models import Project
from controlplane.tenants.selectors import OF, project_counts, project_shares
from frontend.models.forms import (
    AliasForm,
    ModelForm,
    NewModelForm,
    PriceForm,
    model_values,
    price_values,
)
from frontend.shared.access import Viewer, page, show
from frontend.shared.formats import moment, percent
from frontend.shared.forms import made_by
from frontend.shared.stepup import stepped_up, unseen
from frontend.shared.token_prices import RATES, STATES, RatesForm, rates_of

VERSIONS_SHOWN = 20
POLL_MS = 2_000


class Look(NamedTuple):
    """One rate before and after a new price, in micro-USD per million tokens."""

    label: str
    before: int | None
    after: int

    @property
    def change(self) -> str:
        """By how much, in per cent."""
        if self.before == self.after:
            return "unchanged"
        if not self.before:
            return "new"
        sign = "+" if self.after > self.before else "−"
        return sign + percent(abs(self.after - self.before), self.before)


@page("catalog", Action.CATALOG_VIEW, "GET")
def models(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    return _index(request, viewer, NewModelForm())


def _index(request: HttpRequest, viewer: Viewer, form: NewModelForm) -> HttpResponse:
    manages = viewer.may(Action.CATALOG_MANAGE)
    offers = offer_list(now=timezone.now(), enabled_only=not manages)
    rows = [(offer, STATES[offer.state]) for offer in offers]
    context = {"rows": rows, "manages": manages, "form": form, "hub": settings.HUB_URL}
    return show(request, viewer, "models", "models/page.html", context, form.errors)


@page("catalog/add", Action.CATALOG_MANAGE, "POST")
@unseen
@stepped_up
def model_add(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Add a model, with its price and what serves it where that is said; a server is tested."""
    form = NewModelForm(request.POST.dict())
    made = made_by(form, lambda: new_models.model_add(actor=viewer.user, new=form.new()))
    if made is None:
        return _index(request, viewer, form)
    messages.success(request, f"{made.name} is added.")
    connection = connection_of(made)
    if connection is not None:
        found = connection_test(actor=viewer.user, connection=connection)
        tell = messages.success if found.outcome == ProbeOutcome.OK else messages.warning
        tell(request, found.words)
    return redirect("model", name=made.name)


@page("catalog/hub", Action.CATALOG_MANAGE, "GET")
def model_hub(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """What the hub has for the words typed: a part of the form that adds a model."""
    context: dict[str, Any] = {}
    try:
        context["found"] = hub_search(actor=viewer.user, words=request.GET.get("source", ""))
    except ValidationError as error:
        context["complaint"] = " ".join(error.messages)
    return render(request, "models/parts/hub.html", context)


@page("catalog/of/<path:name>", Action.CATALOG_VIEW, "GET", name="model")
def model_detail(request: HttpRequest, viewer: Viewer, name: str) -> HttpResponse:
    """A model; htmx asks for its head again and again until it is served."""
    offer = _offer(viewer, name)
    if "HX-Request" in request.headers:
        answer = render(request, "models/parts/head.html", _head(viewer, offer))
    else:
        answer = _detail(request, viewer, offer)
    patch_vary_headers(answer, ["HX-Request"])
    return answer


@page("catalog/act/<path:name>", Action.CATALOG_MANAGE, "POST")
@stepped_up
def model_act(request: HttpRequest, viewer: Viewer, name: str) -> HttpResponse:
    """Change a model, its price or its purchase price, or switch it on or off."""
    act = ACTS.get(request.POST.get("act", ""))
    if act is None:
        raise Http404
    shown = act(request, viewer, _offer(viewer, name))
    return redirect("model", name=name) if shown is None else shown


def _offer(viewer: Viewer, name: str) -> Offer:
    manages = viewer.may(Action.CATALOG_MANAGE)
    for offer in offer_list(now=timezone.now(), enabled_only=not manages):
        if offer.model.name == name:
            return offer
    raise ObjectDoesNotExist(name)


def _head(viewer: Viewer, offer: Offer) -> dict[str, Any]:
    """How it stands, and the deployments that are to serve it."""
    views = deployment_list(user=viewer.user, now=timezone.now()) if viewer.sees_fleet else []
    return {
        "viewer": viewer,
        "offer": offer,
        "state": STATES[offer.state],
        "manages": viewer.may(Action.CATALOG_MANAGE),
        "deployments": [view for view in views if view.row.model == offer.model.name],
        "poll_ms": POLL_MS if offer.state == "no_node" else 0,
    }


def _detail(request: HttpRequest, viewer: Viewer, offer: Offer, **shown: Any) -> HttpResponse:
    """A model; for staff with versions of its price and with forms: those `shown` as typed."""
    model = offer.model
    context = _head(viewer, offer) | {"aliases": aliases_of(model.name)}
    if context["manages"]:
        names = {one.id: _project_name(one) for one in project_shares(actor=viewer.user)}
        versions = price_list_all(actor=viewer.user, model=model)[:VERSIONS_SHOWN]
        purchases = services.purchase_list(model=model)[:VERSIONS_SHOWN]
        context |= {
            "versions": [
                (one, names.get(one.project_id) if one.project_id else "all") for one in versions
            ],
            "projects": [(str(key), name) for key, name in names.items()],
            "purchases": purchases,
            "form": ModelForm(initial=model_values(model)),
            "price": PriceForm(initial=price_values(offer.price)),
            "purchase": RatesForm(),
            "alias": AliasForm(),
            "connection": connection_of(model),
            "needs": model_needs(actor=viewer.user, model=model),
        }
    wrong = any(each.errors for each in shown.values() if isinstance(each, forms.Form))
    return show(request, viewer, "models", "models/model.html", {**context, **shown}, wrong)


def _project_name(project: Project) -> str:
    return f"{project.organization.name}{OF}{project.name}"


def _change(request: HttpRequest, viewer: Viewer, offer: Offer) -> HttpResponse | None:
    model = offer.model
    form = ModelForm({**request.POST.dict(), "name": model.name, "task": model.task})

    def change() -> object:
        return services.model_change(actor=viewer.user, draft=form.draft(model))

    if made_by(form, change) is None:
        return _detail(request, viewer, offer, form=form)
    messages.success(request, f"{model.name} is changed. Gateways apply it within 2 s.")
    return None


def _switch(request: HttpRequest, viewer: Viewer, offer: Offer) -> None:
    enabled = not offer.model.enabled
    services.model_enable(actor=viewer.user, model=offer.model, enabled=enabled)
    words = "is enabled" if enabled else "is disabled; requests for it are refused"
    messages.success(request, f"{offer.model.name} {words}.")


def _price(request: HttpRequest, viewer: Viewer, offer: Offer) -> HttpResponse | None:
    """Publish, once the sender has seen what changes."""
    form = PriceForm(request.POST.dict())
    if not form.is_valid():
        return _detail(request, viewer, offer, price=form)
    draft, project = form.draft(), _project(viewer, form.cleaned_data["project"])
    later = form.cleaned_data["effective_from"]
    if "later" in request.POST:
        if later is not None:
            form.add_error("effective_from", "A draft takes effect when published; leave it blank.")
            return _detail(request, viewer, offer, price=form)
        entry = PriceEntry(
            model=offer.model.name,
            organization=public_id("org", project.organization_id) if project else "",
            project=public_id("proj", project.id) if project else "",
            **vars(draft),
        )
        made_draft = made_by(form, lambda: PriceChanges(viewer.user).draft_add(entry))
        if made_draft is None:
            return _detail(request, viewer, offer, price=form)
        return redirect("price_changes_version", made_draft.version)
    if "looked" not in request.POST:
        before = _paid(viewer, offer, project)
        looks = [
            Look(RATES[name], before.get(name), rate) for name, rate in rates_of(draft).items()
        ]
        whose = _project_name(project) if project else _all_words(viewer, offer, later)
        return _detail(request, viewer, offer, price=form, looks=looks, whose=whose, later=later)

    def publish() -> PriceVersion:
        return services.price_publish(
            actor=viewer.user, model=offer.model, draft=draft, project=project,
            effective_from=later,
        )  # fmt: skip

    made = made_by(form, publish)
    if made is None:
        return _detail(request, viewer, offer, price=form)
    begins = f"{moment(later)} UTC" if later else "now"
    told = f"Version {made.version} of {offer.model.name} applies from {begins} on."
    messages.success(request, told)
    return None


def _all_words(viewer: Viewer, offer: Offer, later: datetime | None) -> str:
    """Who pays the price of all, from then on."""
    versions, at = price_list_all(actor=viewer.user, model=offer.model), later or timezone.now()
    own = {
        one.project_id for one in versions
        if one.project_id and version_in_force(versions, project_id=one.project_id, at=at)
    }  # fmt: skip
    paying, number = project_counts(actor=viewer.user, besides=own)
    return f"the {paying} projects of {number} organizations that have no price of their own"


def _paid(viewer: Viewer, offer: Offer, project: Project | None) -> dict[str, int]:
    """What the project pays now, or all do; empty without a price."""
    price = offer.price
    if project is not None:
        versions = price_list_all(actor=viewer.user, model=offer.model)
        price = version_in_force(versions, project_id=project.id, at=timezone.now()) or price
    return rates_of(price) if price else {}


def _project(viewer: Viewer, wanted: str) -> Project | None:
    if not wanted:
        return None
    for one in project_shares(actor=viewer.user):
        if str(one.id) == wanted:
            return one
    raise Http404


def _purchase(request: HttpRequest, viewer: Viewer, offer: Offer) -> HttpResponse | None:
    form = RatesForm(request.POST.dict())

    def purchase() -> object:
        draft = services.PurchaseDraft(**form.rates())
        return services.purchase_set(actor=viewer.user, model=offer.model, draft=draft)

    if made_by(form, purchase) is None:
        return _detail(request, viewer, offer, purchase=form)
    messages.success(request, f"Tokens of {offer.model.name} cost this from today (UTC) on.")
    return None


def _alias(request: HttpRequest, viewer: Viewer, offer: Offer) -> HttpResponse | None:
    form = AliasForm(request.POST.dict())

    def add() -> bool:
        alias = form.cleaned_data["alias"]
        alias_add(actor=viewer.user, model=offer.model, alias=alias)
        return True

    if made_by(form, add) is None:
        return _detail(request, viewer, offer, alias=form)
    messages.success(
        request, f"{form.cleaned_data['alias']} leads to {offer.model.name} from now on."
    )
    return None


def _unalias(request: HttpRequest, viewer: Viewer, offer: Offer) -> None:
    alias = request.POST.get("alias", "")
    try:
        alias_remove(actor=viewer.user, model=offer.model, alias=alias)
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
        return
    messages.success(request, f"{alias} no longer leads to {offer.model.name}.")


def _remove(request: HttpRequest, viewer: Viewer, offer: Offer) -> HttpResponse | None:
    try:
        model_discard(actor=viewer.user, model=offer.model)
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
        return None
    messages.success(request, f"{offer.model.name} is removed. Past charges stay on the ledger.")
    return redirect("models")


ACTS: dict[str, Callable[[HttpRequest, Viewer, Offer], HttpResponse | None]] = {
    "change": _change,
    "switch": _switch,
    "price": _price,
    "purchase": _purchase,
    "alias": _alias,
    "unalias": _unalias,
    "remove": _remove,
}
