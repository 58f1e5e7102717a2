"""Audit: who changed what, searched and paged, and the same as CSV."""

import json
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from urllib.parse import urlencode

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

from controlplane.billing.cells import Cell, Column, head_line, instant_text, line_writer
from controlplane.core.answers import Page, PageAsk
from controlplane.core.audit.chain import chain_head
from controlplane.core.models import AuditEntry
from controlplane.core.permissions import Action
from controlplane.core.streaming import csv_answer
from controlplane.kernel.ids import public_id, uuid_of
from controlplane.kernel.money import usd_from_micro, usd_short
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.tenants.audit import selectors as audit
from frontend.shared.access import Viewer, page
from frontend.shared.formats import duration

ROWS = 50
COLUMNS = (
    Column("created_at", Cell.TIME, "When, by the database's clock."),
    Column("actor", Cell.FREE, "Who, as named then."),
    Column("actor_id", Cell.TEXT, "The account; empty for the operator."),
    Column("action", Cell.TEXT, "What was done."),
    Column("subject_type", Cell.TEXT, "The kind of thing."),
    Column("subject_id", Cell.TEXT, "The thing."),
    Column("detail", Cell.FREE, "Facts, as JSON."),
    Column("before", Cell.FREE, "Values that changed, as they were, as JSON."),
    Column("after", Cell.FREE, "The same as they are since, as JSON."),
    Column("channel", Cell.TEXT, "page, api, command or job."),
    Column("address", Cell.TEXT, "From which address."),
    Column("agent", Cell.FREE, "What the client calls itself, or the command."),
    Column("credential", Cell.FREE, "Which session or key."),
    Column("id", Cell.TEXT, "The row."),
)
# Attributes of a row that are named otherwise than their columns.
SOURCES = {"actor": "actor_label", "actor_id": "actor_public", "subject_id": "subject_public"}


# Facts that name what an entry is about.
NAMES = ("name", "label", "email", "model")


# Nouns of codes and kinds that are not words as they are.
NOUNS = {
    "adminkey": "admin key", "apikey": "API key", "kv": "KV", "model digest": "model files",
    "ruleset": "rules", "slo alert": "alert", "slo channel": "alert channel",
    "slo channels": "alert channels",
}  # fmt: skip


# How names of figures end, and how those are told.
UNITS: dict[str, Callable[[int], str]] = {
    "_micro": lambda value: f"${usd_from_micro(value)}",
    "_nano": usd_short,
    "_permille": lambda value: f"{value / 10:g} %",
    "_pico": lambda value: f"${usd_from_micro(value)} per million tokens",
    "_ppm": lambda value: f"{value / 10_000:g} %",
    "_us": duration,
}


def kind_words(kind: str) -> str:
    """`AdminKey` or `admin_key` as “Admin key”."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", kind).lower()
    noun = NOUNS.get(words.replace(" ", ""), NOUNS.get(words, words))
    return noun[:1].upper() + noun[1:]


def action_words(code: str) -> str:
    """`apikey.create` as “API key: create”."""
    kind, _, act = code.partition(".")
    return f"{kind_words(kind)}: {act.replace('_', ' ')}" if act else kind_words(kind)


@dataclass(frozen=True)
class Change:
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class AuditRow:
    entry: AuditEntry

    @property
    def action(self) -> str:
        return action_words(self.entry.action)

    @property
    def kind(self) -> str:
        return kind_words(self.entry.subject_type)

    @property
    def changes(self) -> list[Change]:
        before, after = self.entry.before or {}, self.entry.after or {}
        told = (
            Change(fact_words(name), _word(before, name), _word(after, name))
            for name in {**before, **after}
        )
        return [one for one in told if one.before or one.after]

    @property
    def subject_name(self) -> str:
        """What it was called then, where the entry says so."""
        told = {**(self.entry.after or {}), **self.entry.detail}
        return str(next((told[name] for name in NAMES if told.get(name)), ""))

    @property
    def facts(self) -> list[tuple[str, str]]:
        detail = self.entry.detail
        told = ((fact_words(name), _word(detail, name)) for name in detail)
        return [(name, word) for name, word in told if word]


def fact_words(name: str) -> str:
    """`target_ppm` as “target”: its figure is told with its unit."""
    ends = next((end for end in UNITS if name.endswith(end)), "")
    return name.removesuffix(ends).replace("_", " ")


def _word(facts: dict[str, object], name: str) -> str | None:
    value = facts.get(name)
    if value is None:
        return None
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    show = next((UNITS[end] for end in UNITS if name.endswith(end)), str)
    return show(value) if isinstance(value, int) else str(value)


@page("audit", Action.AUDIT_VIEW, "GET", name="audit")
def audit_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    return _index(request, viewer, viewer.organization.id)


@page("audit/installation", Action.INSTALLATION_AUDIT, "GET")
def audit_installation(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Those that are no organization's: accounts, catalog, fleet, routing."""
    return _index(request, viewer, None)


@page("audit.csv", Action.AUDIT_VIEW, "GET")
def audit_csv(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    return _csv(request, viewer, viewer.organization.id)


@page("audit/installation.csv", Action.INSTALLATION_AUDIT, "GET")
def audit_installation_csv(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    return _csv(request, viewer, None)


def _index(request: HttpRequest, viewer: Viewer, organization: uuid.UUID | None) -> HttpResponse:
    wanted, ask, complaint = _asked(request)
    try:
        found = audit.audit_search(
            actor=viewer.user, organization_id=organization, wanted=wanted, ask=ask
        )
    except TooMuchToRead:
        found, complaint = Page([], False), "The search timed out. Select a shorter period."
    given = {name: request.GET[name] for name in audit.FIELDS if request.GET.get(name)}
    kept = urlencode(given)
    context = {
        "viewer": viewer,
        "here": "audit" if organization else "audit_installation",
        "csv": "audit_csv" if organization else "audit_installation_csv",
        "of_installation": organization is None,
        "rows": [AuditRow(row) for row in found.rows],
        "given": given,
        "kept": kept,
        "complaint": complaint,
        "later_page": ask.after is not None,
        "older": urlencode({**given, "after": public_id("audit", found.rows[-1].id)})
        if found.has_more
        else "",
        "head": chain_head(),
    }
    return render(request, "people/audit.html", context)


def _csv(request: HttpRequest, viewer: Viewer, organization: uuid.UUID | None) -> HttpResponseBase:
    wanted, _, complaint = _asked(request)
    if complaint:
        return HttpResponse(complaint, status=400, content_type="text/plain; charset=utf-8")
    pages = audit.audit_pages(actor=viewer.user, organization_id=organization, wanted=wanted)
    lines = chain([head_line(COLUMNS)], _lines(pages))
    return csv_answer(request, "sluice-audit.csv", (text.encode() for text in lines))


def _asked(request: HttpRequest) -> tuple[audit.AuditFilter, PageAsk, str]:
    """Filter, page, and a sentence where they could not be read."""
    after = request.GET.get("after")
    try:
        place = uuid_of(after, "audit") if after else None
    except ValueError:
        return (
            audit.EVERYTHING,
            PageAsk(limit=ROWS),
            "That page does not exist; showing the newest.",
        )
    try:
        return audit.audit_filter(request.GET), PageAsk(after=place, limit=ROWS), ""
    except ValidationError as error:
        told = "; ".join(f"{name}: {' '.join(texts)}" for name, texts in error.message_dict.items())
        return audit.EVERYTHING, PageAsk(limit=ROWS), told


def _lines(pages: Iterator[list[AuditEntry]]) -> Iterator[str]:
    write = line_writer(COLUMNS, raw=False)
    names = [SOURCES.get(each.name, each.name) for each in COLUMNS]
    for rows in pages:
        yield "".join(write([_text(getattr(row, name)) for name in names]) for row in rows)


def _text(value: object) -> str | None:
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, uuid.UUID):
        return public_id("audit", value)
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
