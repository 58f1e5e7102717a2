"""Limits: those of the organization, its projects and its keys; set by who may, seen by all."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.catalog.selectors import model_list
from controlplane.changes.content import LimitEntry
from controlplane.changes.limits import LimitChanges, public_subject
from controlplane.composed.limits.selectors import LEVELS, MONEY, OUTPUT, Effective
from controlplane.core.permissions import Action
from controlplane.kernel.money import usd_short
from controlplane.quotas.models import RateLimit
from controlplane.quotas.selectors import limit_list, rate_limit_map
from controlplane.quotas.services import LimitedPart, LimitSet, Subject, rate_limit_set
from controlplane.tenants.selectors import apikey_get, apikey_list, project_get
from frontend.shared.access import Viewer, page, show
from frontend.shared.formats import MISSING, count
from frontend.shared.forms import changes, cleaned

LIMIT_WORDS = {
    "requests_per_min": "Requests per minute",
    "tokens_per_min": "Tokens per minute",
    "requests_per_day": "Requests per day",
    "concurrency": "Concurrent requests",
}
PART_WORDS = {"": "", "_user": " for each end user", "_model": " for this model"}
WORDS = {**LIMIT_WORDS, MONEY: "Left of the budget", OUTPUT: "Tokens in an answer"}


class LimitsForm(forms.Form):
    """A limit in each dimension; an empty field is none."""

    requests_per_min = forms.IntegerField(required=False)
    tokens_per_min = forms.IntegerField(required=False)
    requests_per_day = forms.IntegerField(required=False)
    concurrency = forms.IntegerField(required=False)

    @property
    def limits(self) -> LimitSet:
        """Those of a valid form."""
        return LimitSet(*(self.cleaned_data[name] for name in LimitSet._fields))


@dataclass(frozen=True)
class EffectiveRow:
    """One dimension as the table shows it; `cells` in the order of its columns."""

    words: str
    cells: list[tuple[str, str]]
    binds: str


def effective_rows(found: Iterable[Effective]) -> list[EffectiveRow]:
    """Rows for the page; the model's own bound is told in the last column."""
    return [
        EffectiveRow(
            WORDS[each.dimension],
            [(level.title(), _shown(each, level)) for level in LEVELS],
            "" if each.binds is None else _binds(each),
        )
        for each in found
    ]


def _shown(each: Effective, level: str) -> str:
    """What the level gives all requests, and parts of them."""
    shown = usd_short if each.dimension == MONEY else count
    told = [
        f"{shown(value)}{words}"
        for part, words in PART_WORDS.items()
        if (value := each.levels.get(level + part)) is not None
    ]
    return "; ".join(told) or MISSING


def _binds(each: Effective) -> str:
    if each.binds == "model":
        return f"model: {count(each.limit)}"
    level, _, part = str(each.binds).partition("_")
    return level + PART_WORDS[f"_{part}" if part else ""]


@dataclass(frozen=True)
class LimitRow:
    scope: str
    id: uuid.UUID
    name: str
    limit: RateLimit | None
    anchor: str = ""

    @property
    def cells(self) -> list[tuple[str, str, int | None]]:
        return [
            (name, words, getattr(self.limit, name) if self.limit else None)
            for name, words in LIMIT_WORDS.items()
        ]


class LimitForm(LimitsForm):
    """What is limited, and to what; an empty field lifts a limit."""

    scope = forms.ChoiceField(choices=[(one, one) for one in ("organization", "project", "key")])
    subject = forms.UUIDField()
    model = forms.CharField(max_length=100, required=False)
    per_user = forms.BooleanField(required=False)


@page("limits", Action.ORGANIZATION_VIEW, "GET", name="limits")
def limit_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    rows = _rows(viewer)
    context = {
        "rows": rows,
        "limited": any(row.limit for row in rows),
        "heads": " | #".join(("Name | Level", *LIMIT_WORDS.values())),
        "models": [one.name for one in model_list()],
        "sets": viewer.may(Action.LIMIT_SET),
    }
    return show(request, viewer, "limits", "keys/limits.html", context)


@changes("limits/draft", Action.LIMIT_SET, "limits")
def limit_draft(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The same form, to be tried on recorded requests first."""
    form = LimitForm(request.POST)
    wanted = cleaned(form)
    subject = _subject(viewer, wanted["scope"], wanted["subject"])
    part = {name: wanted[name] for name in ("model", "per_user")}
    entry = LimitEntry(of=public_subject(subject), **part, **form.limits._asdict())
    made = LimitChanges(**viewer.whose).draft_add(entry)
    return redirect("limit_changes_version", made.version)


@changes("limits/set", Action.LIMIT_SET, "limits")
def limit_save(request: HttpRequest, viewer: Viewer) -> str:
    form = LimitForm(request.POST)
    wanted = cleaned(form)
    subject = _subject(viewer, wanted["scope"], wanted["subject"])
    part = LimitedPart(subject, wanted["model"], wanted["per_user"])
    rate_limit_set(actor=viewer.user, subject=part, **form.limits._asdict())
    return "The limits are saved; gateways apply them within two seconds."


def _subject(viewer: Viewer, scope: str, subject: uuid.UUID) -> Subject:
    if scope == "organization":
        return viewer.organization
    if scope == "project":
        return project_get(user=viewer.user, project_id=subject)
    return apikey_get(user=viewer.user, apikey_id=subject)


def _rows(viewer: Viewer) -> list[LimitRow]:
    limits = rate_limit_map(user=viewer.user)
    own = viewer.organization
    rows = [LimitRow("organization", own.id, own.name, limits.get(own.id))]
    rows += [LimitRow("project", one.id, one.name, limits.get(one.id)) for one in viewer.projects()]
    # A rotated key's limits are those of its line: the newest of it stands for all.
    keys = apikey_list(user=viewer.user, organization_id=own.id)
    of = {row.id: row for row in rows}
    for key in keys:
        if not key.replaced and key.revoked_at is None:
            row = LimitRow("key", key.id, key.label, limits.get(key.limits_id))
            of[key.limits_id] = row
    # Those of a part of the requests follow.
    parts = [
        replace(
            of[one.subject_id],
            limit=one,
            anchor=one.id.hex,
            name=f"{of[one.subject_id].name}, {one.model or 'each end user'}",
        )
        for one in limit_list(actor=viewer.user, organization_id=own.id)
        if (one.model or one.per_user) and one.subject_id in of
    ]
    return [*(replace(row, anchor=row.id.hex) for row in of.values()), *parts]
