"""Changes of limits and of prices: each drafted, compared, tried, published and undone alike."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.changes.dryruns import limits_dry_run, limits_shadow
from controlplane.changes.limits import LimitChanges
from controlplane.changes.models import ChangeVersion
from controlplane.changes.prices import PriceChanges
from controlplane.changes.pricing import prices_dry_run
from controlplane.core.permissions import Action
from controlplane.core.versions.models import NOTE_CHARS_MAX, State
from frontend.changes import rows
from frontend.shared import versions as shared
from frontend.shared.access import Viewer, page, show
from frontend.shared.asked import in_time
from frontend.shared.forms import JsonField, cleaned
from frontend.shared.stepup import stepped_up

TEXT_CHARS_MAX = 500_000
URLS = ("index", "draft", "version", "dry_run", "publish", "step", "rollback")
SHADOW = "shadow"


@dataclass(frozen=True, kw_only=True)
class ChangePlace:
    """One kind of changes: where its pages are, who may see them, and its words.

    `here` is its entry of the navigation, `first` what an empty draft says.
    """

    at: str
    name: str
    here: str
    title: str
    action: Action
    changes: Callable[[Viewer], Any]
    tried: Callable[[Any, ChangeVersion, int], Any]
    told: Callable[[Any], shared.TrialShown]
    first: dict[str, Any]
    shadows: bool = False

    @property
    def urls(self) -> dict[str, str]:
        """Names of its pages' addresses."""
        return {step: f"{self.name}_{step}" for step in URLS}


class ContentForm(shared.DraftForm):
    """A draft as it was typed."""

    content = JsonField(max_length=TEXT_CHARS_MAX)


class UndoForm(forms.Form):
    """The change in force, as the page showed it."""

    version = forms.IntegerField(min_value=1)


LIMITS = ChangePlace(
    at="limits/changes",
    name="limit_changes",
    here="limits",
    title="Changes of limits and budgets",
    action=Action.LIMIT_SET,
    changes=lambda viewer: LimitChanges(**viewer.whose),
    tried=limits_dry_run,
    told=rows.limits_trial,
    first={"limits": [], "budgets": []},
    shadows=True,
)
PRICES = ChangePlace(
    at="catalog/changes",
    name="price_changes",
    here="models",
    title="Changes of prices",
    action=Action.CATALOG_MANAGE,
    changes=lambda viewer: PriceChanges(viewer.user),
    tried=prices_dry_run,
    told=rows.prices_trial,
    first={"prices": []},
)


def index(place: ChangePlace, request: HttpRequest, viewer: Viewer) -> HttpResponse:
    changes = place.changes(viewer)
    found, current = changes.newest(), changes.in_force()
    undone = changes.undoable(current)
    shadow = next((one for one in found if one.state == State.CANARY), None)
    context = {
        "place": place,
        "current": current,
        "undone": undone,
        "back": rows.difference_rows(changes.differences(undone)) if undone else [],
        "shadow": shadow,
        "since": SHADOW,
        "versions": [(one, shared.TONES[one.state]) for one in found],
    }
    return show(request, viewer, place.here, "changes/page.html", context)


def draft(place: ChangePlace, request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """A draft that says nothing yet."""
    made = place.changes(viewer).draft_create(place.first)
    return redirect(place.urls["version"], made.version)


def version(place: ChangePlace, request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
    return _page(place, request, viewer, place.changes(viewer).get(version))


def dry_run(place: ChangePlace, request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
    """What it would have done with the requests of so many hours, or since its shadow began."""
    changes = place.changes(viewer)
    found = changes.get(version)
    shadows = place.shadows and found.state == State.CANARY
    since = shadows and request.GET.get("hours") == SHADOW
    hours, complaint = shared.hours_asked(request)
    try:
        told = in_time(
            lambda: limits_shadow(changes) if since else place.tried(changes, found, hours)
        )
    except ValidationError as error:
        return _page(place, request, viewer, found, error=error)
    context = {
        "version": version,
        "back": reverse(place.urls["version"], args=[version]),
        "hours": SHADOW if since else hours,
        "offered": (*shared.HOURS_OFFERED, *([(SHADOW, "The shadow")] if shadows else [])),
        "complaint": "" if since else complaint,
        "found": place.told(told) if told else None,
    }
    return show(request, viewer, place.here, "shared/dry_run.html", context)


def publish(place: ChangePlace, request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
    return _taken(place, request, viewer, version, shared.publish)


def step(
    place: ChangePlace, request: HttpRequest, viewer: Viewer, version: int, step: str
) -> HttpResponse:
    found = STEPS.get(step)
    if found is None or (step == SHADOW and not place.shadows):
        raise Http404
    return _taken(place, request, viewer, version, found)


def rollback(place: ChangePlace, request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Undo the change in force, as the page showed it."""
    try:
        made = place.changes(viewer).undo(cleaned(UndoForm(request.POST))["version"])
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    else:
        messages.success(request, f"Version {made.version} is live: {made.note}.")
    return redirect(place.urls["index"])


def _taken(
    place: ChangePlace, request: HttpRequest, viewer: Viewer, number: int, step: shared.Step
) -> HttpResponse:
    changes = place.changes(viewer)

    def again(error: ValidationError) -> HttpResponse:
        text = request.POST.get("content")
        return _page(place, request, viewer, changes.get(number), text=text, error=error)

    return shared.step_taken(
        request,
        step,
        changes,
        changes.get(number),
        to=lambda now: reverse(place.urls["version"], args=[now.version]),
        again=again,
    )


def _shadow(post: QueryDict, changes: Any, found: ChangeVersion) -> tuple[ChangeVersion, str]:
    shared.read_of(shared.RevisionForm, post, found)
    now = changes.canary_start(found)
    told = f"Version {now.version} is in shadow: requests are checked against it; none are refused."
    return now, told


STEPS: dict[str, shared.Step] = {
    "save": shared.save(ContentForm),
    SHADOW: _shadow,
    "stop": shared.stop("shadow"),
    "discard": shared.discard,
    "copy": shared.copy,
}


def _page(
    place: ChangePlace,
    request: HttpRequest,
    viewer: Viewer,
    found: ChangeVersion,
    *,
    text: str | None = None,
    error: ValidationError | None = None,
) -> HttpResponse:
    changes, is_draft = place.changes(viewer), found.state == State.DRAFT
    context = {
        "place": place,
        "version": found,
        "tone": shared.TONES[found.state],
        "draft": is_draft,
        "on_trial": found.state == State.CANARY,
        "differences": rows.difference_rows(changes.differences(found)),
        "problems": [] if error or not is_draft else changes.problems(found),
        "text": shared.text_of(found.content) if text is None else text,
        "errors": shared.listed(error),
        "note_chars_max": NOTE_CHARS_MAX,
    }
    answer = show(request, viewer, place.here, "changes/version.html", context)
    answer.status_code = 200 if error is None else shared.status_of(error)
    return answer


def _register(place: ChangePlace) -> None:
    of = f"{place.at}/<int:version>"
    for address, view, method, confirmed in (
        (place.at, index, "GET", False),
        (f"{place.at}/draft", draft, "POST", False),
        (f"{place.at}/rollback", rollback, "POST", True),
        (of, version, "GET", False),
        (f"{of}/dry-run", dry_run, "GET", False),
        (f"{of}/publish", publish, "POST", True),
        (f"{of}/<slug:step>", step, "POST", False),
    ):
        shown = partial(view, place)
        name = place.urls[view.__name__]
        page(address, place.action, method, name=name)(stepped_up(shown) if confirmed else shown)


for _place in (LIMITS, PRICES):
    _register(_place)
