"""Configuration: what is configured as YAML, and a document compared with it and applied."""

from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.blueprint.configuration import (
    ValueChange,
    configuration_apply,
    configuration_export,
)
from controlplane.blueprint.ready import READY, ready_names
from controlplane.blueprint.watching import configuration_passes
from controlplane.core.permissions import Action
from frontend.shared.access import Viewer, page, show
from frontend.shared.stepup import stepped_up

HERE = "configuration"
WRONG = 422
CELL_CHARS_MAX = 400


class Row(NamedTuple):
    """One value that a document changes, as it is shown."""

    path: str
    before: str
    after: str


@page("configuration", Action.CONFIG_MANAGE, "GET")
def configuration(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The form; with `ready` one of the ready documents stands in it."""
    name = request.GET.get("ready", "")
    if name and name not in ready_names():
        raise Http404
    text = (READY / f"{name}.yaml").read_text(encoding="utf-8") if name else ""
    return _page(request, viewer, text=text)


@page("configuration/file", Action.CONFIG_MANAGE, "GET")
def configuration_file(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    answer = HttpResponse(configuration_export(actor=viewer.user), content_type="application/yaml")
    answer["Content-Disposition"] = 'attachment; filename="sluice.yaml"'
    return answer


@page("configuration/compare", Action.CONFIG_MANAGE, "POST")
def configuration_compare(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """What a document would change; nothing is done."""
    return _read(request, viewer, dry_run=True)


@page("configuration/apply", Action.CONFIG_MANAGE, "POST")
@stepped_up
def configuration_change(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Make it so, all or nothing, if it is what was compared."""
    if request.POST.get("compared") != _digest(_text(request)):
        messages.info(request, "The document has changed since it was compared. Compare it again.")
        return _read(request, viewer, dry_run=True)
    return _read(request, viewer, dry_run=False)


def _read(request: HttpRequest, viewer: Viewer, *, dry_run: bool) -> HttpResponse:
    text = _text(request)
    try:
        changes = configuration_apply(actor=viewer.user, text=text, dry_run=dry_run)
    except ValidationError as error:
        return _page(request, viewer, text=text, error=error)
    if dry_run:
        return _page(request, viewer, text=text, changes=changes)
    count = len(changes)
    messages.success(request, f"{count} value{'' if count == 1 else 's'} changed.")
    return redirect("configuration")


def _page(
    request: HttpRequest,
    viewer: Viewer,
    *,
    text: str,
    changes: list[ValueChange] | None = None,
    error: ValidationError | None = None,
) -> HttpResponse:
    told = error.message_dict.items() if error else ()
    context: dict[str, Any] = {
        "text": text,
        "compared": _digest(text) if changes is not None else "",
        "changes": [_row(change) for change in changes or ()],
        "errors": [(path, " ".join(each)) for path, each in told],
        "ready": ready_names(),
        "passes": configuration_passes(actor=viewer.user),
    }
    return show(request, viewer, HERE, "configuration/page.html", context, error)


def _text(request: HttpRequest) -> str:
    return request.POST.get("text", "").replace("\r\n", "\n")


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _row(change: ValueChange) -> Row:
    before, after = (
        msgspec.json.encode(value).decode()[:CELL_CHARS_MAX]
        for value in (change.before, change.after)
    )
    return Row(change.path, before, after)
