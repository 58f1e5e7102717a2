"""The four-way comparison: those that were run, and running one."""

from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.cache import patch_vary_headers

from controlplane.catalog.models import Task
from controlplane.catalog.selectors import model_list
from controlplane.core.permissions import Action
from controlplane.insights import comparison_runs as runs
from controlplane.insights.compare import WayResult
from controlplane.insights.comparisons import comparison_list
from frontend.shared import formats
from frontend.shared.access import Viewer, page, show
from frontend.shared.addresses import gateway_url
from frontend.shared.forms import made_by

# How far answers' lengths may differ for their times to be compared.
ALIKE_MIN, ALIKE_MAX = 0.9, 1.1
# From here on speeds are told in times, not in per cent.
TIMES_FROM = 2
POLL_MS = 2_000


@dataclass(frozen=True)
class ShownWay:
    """One way of a comparison beside the first."""

    way: WayResult
    first: WayResult

    @property
    def faster(self) -> str:
        """Its latency beside the first way's, where their answers are about as long."""
        length = self.way.tokens_each / self.first.tokens_each if self.first.output_tokens else 0.0
        if not ALIKE_MIN <= length <= ALIKE_MAX:
            return "other length"
        return _speed(self.first.latency_p50_us / self.way.latency_p50_us)

    @property
    def sooner(self) -> str:
        return f"{_speed(self.first.ttft_p50_us / self.way.ttft_p50_us)} to first token"


def _speed(times: float) -> str:
    """How much faster or slower so many times as fast is."""
    if times >= TIMES_FROM:
        return f"{formats.significant(times, 2)}× as fast"
    change = round(100 * (times - 1))
    return f"{abs(change)} % {'faster' if change > 0 else 'slower'}" if change else "as fast"


class ComparisonForm(forms.Form):
    """Which models, and which project pays for it."""

    project = forms.ChoiceField()
    large, small = (forms.ChoiceField(required=False) for _ in range(2))
    requests = forms.IntegerField(
        min_value=1, max_value=runs.REQUESTS_MAX, initial=runs.REQUESTS_MAX
    )

    def __init__(self, viewer: Viewer, given: dict[str, Any] | None = None) -> None:
        super().__init__(given)
        models = [one.name for one in model_list(enabled_only=True) if one.task == Task.GENERATE]
        self.projects = {str(one.id): one for one in viewer.projects()}
        choices = [(key, one.name) for key, one in self.projects.items()]
        self.fields["project"].choices = choices  # type: ignore[attr-defined]
        for name in ("large", "small"):
            self.fields[name].choices = [("", ""), *((one, one) for one in models)]  # type: ignore[attr-defined]


@page("insights/comparison", Action.ORGANIZATION_VIEW, "GET", shared=True)
def comparison(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The newest of the four-way comparisons, and those before; htmx asks for these alone."""
    if "HX-Request" in request.headers:
        answer = render(request, "insights/parts/comparisons.html", _kept(viewer))
    else:
        answer = _page(request, viewer, None)
    patch_vary_headers(answer, ["HX-Request"])
    return answer


@page("insights/comparison/run", Action.FLEET_MANAGE, "POST")
def comparison_run(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Start one: its requests are charged to the project that was chosen."""
    form = ComparisonForm(viewer, request.POST.dict())

    def start() -> bool:
        given = form.cleaned_data
        runs.comparison_start(
            actor=viewer.user, project=form.projects[given["project"]], url=gateway_url(request),
            large=given["large"] or None, small=given["small"] or None, requests=given["requests"],
        )  # fmt: skip
        return True

    return redirect("comparison") if made_by(form, start) else _page(request, viewer, form)


def _kept(viewer: Viewer) -> dict[str, Any]:
    running, failed = runs.comparison_state()
    if failed and not viewer.may(Action.FLEET_MANAGE):
        failed = "Staff can see why."
    kept = [(one, [ShownWay(way, one.ways[0]) for way in one.ways]) for one in comparison_list()]
    return {"kept": kept, "running": running, "failed": failed, "seconds": runs.SECONDS}


def _page(request: HttpRequest, viewer: Viewer, form: ComparisonForm | None) -> HttpResponse:
    starts = viewer.may(Action.FLEET_MANAGE) and viewer.plays
    form = form or (ComparisonForm(viewer) if starts else None)
    context = {"tab": "comparison", "form": form, "poll_ms": POLL_MS, **_kept(viewer)}
    errors = form.errors if form else None
    return show(request, viewer, "insights", "insights/comparison.html", context, errors)
