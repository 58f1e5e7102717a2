"""What pages of versions share: fields of forms, and how content and refusals are shown."""

from difflib import unified_diff

import msgspec
from django import forms
from django.core.exceptions import ValidationError

from controlplane.core.errors.body import Conflict
from controlplane.core.versions.models import NOTE_CHARS_MAX
from controlplane.kernel.rules import PERMILLE

# One per cent in per mille, and the largest whole share of a trial in per cent.
SHARE_STEP = PERMILLE // 100
SHARE_MAX = PERMILLE // 10 - 1
WRONG, LATE = 422, 409
TONES = {"published": "ok", "canary": "warn", "draft": "off", "retired": "off"}
DIFFERENCE_LINES_MAX = 2_000


class RevisionForm(forms.Form):
    revision = forms.IntegerField(min_value=1)


class DraftForm(RevisionForm):
    """What every draft has beside its content."""

    note = forms.CharField(max_length=NOTE_CHARS_MAX, required=False)


class CanaryForm(RevisionForm):
    """A share in per cent."""

    share = forms.DecimalField(min_value=0, max_value=100, decimal_places=1)


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
