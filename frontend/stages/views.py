"""Stages: who owns each of the seven, its budget and alerts, and the runbooks."""

import re
from dataclasses import dataclass
from datetime import date

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from controlplane.core.permissions import Action
from controlplane.kernel.objectives.counting import STAGE
from controlplane.slos import selectors, services
from controlplane.slos.channels.words import alert_runbook, sentence
from controlplane.slos.checks import StageBody
from controlplane.slos.duties import (
    DutyBody,
    DutyNow,
    duties_now,
    duty_hand_over,
    indicator_owners,
)
from controlplane.slos.learning import REQUESTS_MIN
from controlplane.slos.models import EVERYONE, NOBODY, Alert, Duty, StageOwner
from controlplane.slos.runbooks import runbook_path, runbook_slugs, runbook_text
from frontend.shared import formats
from frontend.shared.access import Viewer, page, show
from frontend.shared.forms import changes
from frontend.shared.stages import LABELS, STAGE_NAMES

_ITEM = re.compile(r"(?:(-)|\d+\.) +(.*)")
_CODE = re.compile(r"`([^`]+)`")
_STRESS = re.compile(r"\*([^*]+)\*")


def title_of(text: str) -> str:
    return text.partition("\n")[0].removeprefix("#").strip()


def to_html(text: str) -> SafeString:
    blocks = text.partition("\n")[2].strip().split("\n\n")
    # All that came from the file was escaped piece by piece.
    return mark_safe("\n".join(_block(block.splitlines()) for block in blocks))


def _block(lines: list[str]) -> str:
    if lines[0].startswith("## "):
        return f"<h2>{_inline(lines[0][3:])}</h2>"
    items = [_ITEM.fullmatch(line) for line in lines]
    if items[0] is None:
        return f"<p>{_inline(' '.join(lines))}</p>"
    tag = "ul" if items[0][1] else "ol"
    inside = "".join(f"<li>{_inline(item[2])}</li>" for item in items if item is not None)
    return f"<{tag}>{inside}</{tag}>"


def _inline(text: str) -> str:
    return _STRESS.sub(r"<em>\1</em>", _CODE.sub(r"<code>\1</code>", escape(text)))


MS_MAX = 3_600_000


@dataclass(frozen=True)
class OwnedStage:
    """One row: the stage, its owner, and what fires on it. Its times are on *Overview*."""

    number: int
    name: str
    label: str
    owner: StageOwner
    team: str
    budget_ms: str
    runbook: str
    alerts: list[Alert]
    duties: list[DutyNow]


@page("stages", Action.SLO_VIEW, "GET", shared=True)
def stages(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    context = {
        "rows": _rows(viewer),
        "sets": viewer.may(Action.SLO_INSTALLATION),
        "runbooks": runbook_slugs(),
        "duties": [(one, one) for one in Duty.values],
        "learned_after": REQUESTS_MIN,
    }
    return show(request, viewer, "stages", "stages/list.html", context)


@changes("stages/<slug:stage>", Action.SLO_INSTALLATION, "stages")
def stage_save(request: HttpRequest, viewer: Viewer, stage: str) -> str:
    posted = request.POST
    services.stage_owner_set(
        actor=viewer.user,
        stage=stage,
        owner=StageBody(
            team=posted.get("team", "").strip(),
            email=posted.get("email", "").strip(),
            budget_us=_microseconds(posted.get("budget_ms", "")),
            runbook=posted.get("runbook", "").strip(),
        ),
    )
    return f"The owner of {LABELS[stage]} is saved."


@changes("stages/<slug:stage>/duties", Action.SLO_INSTALLATION, "stages")
def stage_duty_save(request: HttpRequest, viewer: Viewer, stage: str) -> str:
    """Hand a duty over, from a day on."""
    posted = request.POST
    try:
        begins = date.fromisoformat(posted.get("begins", ""))
    except ValueError:
        raise ValidationError({"begins": "Must be a date such as 2026-12-01."}) from None
    email = posted.get("email", "").strip()
    to = DutyBody(team=posted.get("team", "").strip(), begins=begins, email=email)
    made = duty_hand_over(actor=viewer.user, stage=stage, duty=posted.get("duty", ""), to=to)
    return f"{made.team or 'The stage owner'} has {made.duty} from {made.begins} on."


@page("runbooks", Action.SLO_VIEW, "GET", name="runbooks")
def runbook_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    found = [(slug, title_of(runbook_text(slug))) for slug in runbook_slugs()]
    context = {"found": found}
    return show(request, viewer, "stages", "stages/runbooks.html", context)


@page("runbooks/<slug:slug>", Action.SLO_VIEW, "GET")
def runbook(request: HttpRequest, viewer: Viewer, slug: str) -> HttpResponse:
    text = runbook_text(slug)
    owners = indicator_owners(slug.replace("-", "_"))
    seen = [viewer.organization.id, *([EVERYONE] if viewer.may(Action.SLO_INSTALLATION) else [])]
    firing = [
        (one, sentence(one, one.state))
        for organization in seen
        for one in selectors.alerts_firing(actor=viewer.user, organization=organization)
        if alert_runbook(one) == slug
    ]
    context = {"title": title_of(text), "text": to_html(text), "owners": owners, "firing": firing}
    return show(request, viewer, "stages", "stages/runbook.html", context)


def _rows(viewer: Viewer) -> list[OwnedStage]:
    owners, duties = selectors.stage_owners(), duties_now()
    alerts = selectors.stage_alerts(
        actor=viewer.user, organizations=[viewer.organization.id, EVERYONE]
    )
    return [
        _row(number, owners[name], alerts.get(f"{STAGE}{name}", []), duties[name])
        for number, name in enumerate(STAGE_NAMES, start=1)
    ]


def _row(number: int, owner: StageOwner, alerts: list[Alert], duties: list[DutyNow]) -> OwnedStage:
    name = owner.stage
    return OwnedStage(
        number=number,
        name=name,
        label=LABELS[name],
        owner=owner,
        team="" if owner.team == NOBODY else owner.team,
        budget_ms=f"{owner.budget_us / formats.US_PER_MS:g}",
        runbook=runbook_path(owner.runbook),
        alerts=alerts,
        duties=duties,
    )


def _microseconds(text: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MS_MAX:
        raise ValidationError({"budget_ms": f"Milliseconds, above 0 and up to {MS_MAX:,}."})
    return max(1, round(value * formats.US_PER_MS))
