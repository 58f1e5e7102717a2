"""What every API answers of a version, whatever it holds."""

from datetime import datetime
from typing import Any, TypedDict, TypeVar

from controlplane.core.answers import answer_of

Answer = TypeVar("Answer")


class VersionSummary(TypedDict):
    """A version without what it says; `copy_of` is the one that a rollback brought back."""

    version: int
    state: str
    note: str
    revision: int
    copy_of: int | None
    created_by: str | None
    created_at: datetime
    published_at: datetime | None


def version_answer(shape: type[Answer], version: Any, **given: object) -> Answer:
    """A version in a shape that begins with the summary."""
    return answer_of(
        shape,
        version,
        copy_of=version.copy_of and version.copy_of.version,
        created_by=version.created_by and version.created_by.email,
        **given,
    )
