"""What pages of versions share: steps of their buttons, and how content and dry runs are shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff
from typing import Any

import msgspec
from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect

from controlplane.core.errors.body import Conflict
from controlplane.core.versions.models import NOTE_CHARS_MAX
from controlplane.kernel.rules import PERMILLE
from controlplane.routing.traffic import HOURS_DEFAULT, HOURS_MAX
from frontend.shared.forms import cleaned
from frontend.shared.panels import TablePanel

# One per cent in per mille, and the largest whole share of a trial in per cent.
SHARE_STEP = PERMILLE // 100
SHARE_MAX = PERMILLE // 10 - 1
WRONG, LATE = 422, 409
TONES = {"published": "ok", "canary": "warn", "draft": "off", "retired": "off"}
DIFFERENCE_LINES_MAX = 2_000
HOURS_OFFERED: tuple[tuple[int | str, str], ...] = (
    (1, "1 hour"), (6, "6 hours"), (24, "24 hours"), (168, "7 days"),
)  # fmt: skip
# From what was posted, the versions and one of them: the version then, and how it went.
Step = Callable[[QueryDict, Any, Any], tuple[Any, str]]


class RevisionForm(forms.Form):
    revision = forms.IntegerField(min_value=1)


class DraftForm(RevisionForm):
    """What every draft has beside its content."""

    note = forms.CharField(max_length=NOTE_CHARS_MAX, required=False)


class CanaryForm(RevisionForm):
    """A share in per cent."""

    share = forms.DecimalField(min_value=0, max_value=100, decimal_places=1)


def step_taken(
    request: HttpRequest,
    step: Step,
    versions: Any,
    version: Any,
    *,
    to: Callable[[Any], str],
    again: Callable[[ValidationError], HttpResponse],
) -> HttpResponse:
    """Told on the page at the address `to`; a refusal by the page of the version `again`."""
    try:
        now, told = step(request.POST, versions, version)
    except ValidationError as error:
        return again(error)
    messages.success(request, told)
    return redirect(to(now))


def read_of(form: type[RevisionForm], post: QueryDict, version: Any) -> dict[str, Any]:
    """What a form says, of the revision that its page showed; raises ValidationError."""
    read = cleaned(form(post))
    version.revision = read["revision"]
    return read


def publish(post: QueryDict, versions: Any, version: Any) -> tuple[Any, str]:
    read_of(RevisionForm, post, version)
    now = versions.publish(version)
    return now, f"Version {now.version} is live; gateways apply it within two seconds."


def discard(post: QueryDict, versions: Any, version: Any) -> tuple[Any, str]:
    now = versions.draft_discard(version)
    return now, f"Draft {now.version} is discarded; it can still be read and copied."


def copy(post: QueryDict, versions: Any, version: Any) -> tuple[Any, str]:
    made = versions.draft_create(getattr(version, versions.content))
    return made, f"Version {made.version} is a draft and not yet used."


def save(form: type[DraftForm]) -> Step:
    """The step of a form that has what a draft says under the name of its field."""

    def step(post: QueryDict, versions: Any, version: Any) -> tuple[Any, str]:
        read = read_of(form, post, version)
        now = versions.draft_update(version, read[versions.content], read["note"])
        return now, f"Draft {now.version} is saved."

    return step


def canary(told: str, form: type[CanaryForm] = CanaryForm) -> Step:
    """The step that gives a share to a trial, told as `% of … version`."""

    def step(post: QueryDict, versions: Any, version: Any) -> tuple[Any, str]:
        read = read_of(form, post, version)
        more = {name: value for name, value in read.items() if name not in CanaryForm.base_fields}
        now = versions.canary_start(version, int(read["share"] * SHARE_STEP), **more)
        return now, f"{read['share']} % of {told} version {now.version}."

    return step


def stop(trial: str) -> Step:
    """The step that ends a trial of this name, for a reason where one is given."""

    def step(post: QueryDict, versions: Any, version: Any) -> tuple[Any, str]:
        reason = post.get("reason")
        now = versions.canary_stop(version, reason and reason.strip()[:NOTE_CHARS_MAX])
        return now, f"The {trial} of version {now.version} has ended."

    return step


def status_of(error: ValidationError) -> int:
    return LATE if isinstance(error, Conflict) else WRONG


def listed(error: ValidationError | None) -> list[tuple[str, str]]:
    told = error.message_dict.items() if error else ()
    return [(name, " ".join(words)) for name, words in told]


def text_of(content: object) -> str:
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def difference(before: object, after: object, names: tuple[str, str]) -> str:
    """What changes from one content, of this name, to another, line by line; empty for nothing."""
    old, new = (text_of(content).splitlines() for content in (before, after))
    lines = list(unified_diff(old, new, *names, lineterm=""))
    left_out = len(lines) - DIFFERENCE_LINES_MAX
    more = [f"… {left_out} more lines"] if left_out > 0 else []
    return "\n".join([*lines[:DIFFERENCE_LINES_MAX], *more])


@dataclass(frozen=True, kw_only=True)
class TrialShown:
    """What was found in words, of so many `requests`; where none could be tried `nothing` says why.

    `beside` is what a version was held against, `told` are sentences with their tones.
    """

    beside: str
    start: datetime
    end: datetime
    complete: bool
    requests: int
    facts: Sequence[tuple[str, str]]
    tables: Sequence[TablePanel]
    notes: Sequence[str]
    told: Sequence[tuple[str, str]] = ()
    nothing: str = "No data in this range; choose more hours."


def hours_asked(request: HttpRequest) -> tuple[int, str]:
    """How far back, and a sentence where the question could not be answered as put."""
    text = request.GET.get("hours", str(HOURS_DEFAULT))
    short = len(text) <= 3 and text.isascii() and text.isdecimal()
    if short and 1 <= int(text) <= HOURS_MAX:
        return int(text), ""
    told = f"“{text[:20]}” is not a number of hours from 1 to {HOURS_MAX}; showing {HOURS_DEFAULT}."
    return HOURS_DEFAULT, told
