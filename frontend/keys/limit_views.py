"""Limits: those of the organization, its projects and its keys; set by who may, seen by all."""

import uuid
from dataclasses import dataclass

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_POST

from controlplane.core.permissions import Action
from controlplane.quotas.models import RateLimit
from controlplane.quotas.selectors import rate_limit_map
from controlplane.quotas.services import LimitSet, Subject, rate_limit_set
from controlplane.tenants.selectors import apikey_get, apikey_list, project_get
from frontend.keys.limit_words import LIMIT_WORDS
from frontend.shared.access import Viewer, page, show
from frontend.shared.forms import cleaned


@dataclass(frozen=True)
class LimitRow:
    scope: str
    id: uuid.UUID
    name: str
    limit: RateLimit | None

    @property
    def cells(self) -> list[tuple[str, str, int | None]]:
        return [
            (name, words, getattr(self.limit, name) if self.limit else None)
            for name, words in LIMIT_WORDS.items()
        ]


class LimitForm(forms.Form):
    """What is limited, and to what; an empty field lifts a limit."""

    scope = forms.ChoiceField(choices=[(one, one) for one in ("organization", "project", "key")])
    subject = forms.UUIDField()
    requests_per_min = forms.IntegerField(required=False)
    tokens_per_min = forms.IntegerField(required=False)
    requests_per_day = forms.IntegerField(required=False)
    concurrency = forms.IntegerField(required=False)


@page(Action.ORGANIZATION_VIEW)
@require_GET
def limit_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    rows = _rows(viewer)
    context = {
        "rows": rows,
        "limited": any(row.limit for row in rows),
        "words": LIMIT_WORDS.values(),
        "sets": viewer.may(Action.LIMIT_SET),
    }
    return show(request, viewer, "limits", "keys/limits.html", context)


@page(Action.LIMIT_SET)
@require_POST
def limit_save(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    try:
        wanted = cleaned(LimitForm(request.POST))
        subject = _subject(viewer, wanted["scope"], wanted["subject"])
        limits = LimitSet(*(wanted[name] for name in LimitSet._fields))
        rate_limit_set(actor=viewer.user, subject=subject, **limits._asdict())
    except ValidationError as error:
        told = [
            f"{LIMIT_WORDS.get(field, field)}: {' '.join(words)}"
            for field, words in error.message_dict.items()
        ]
        messages.error(request, " ".join(told))
    else:
        messages.success(request, "The limits are saved; gateways apply them within two seconds.")
    return redirect("limits")


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
    return rows + [
        LimitRow("key", key.id, key.label, limits.get(key.limits_id))
        for key in keys
        if not key.replaced and key.revoked_at is None
    ]
