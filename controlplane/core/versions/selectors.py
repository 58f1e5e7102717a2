"""Which of a thing's versions are in use; `rows` are all versions of one thing."""

from typing import TypeVar

from django.db.models import QuerySet

from controlplane.core.versions.models import State, Version

AnyVersion = TypeVar("AnyVersion", bound=Version)


def in_force(rows: QuerySet[AnyVersion]) -> AnyVersion | None:
    """The published version, None before the first."""
    return rows.filter(state=State.PUBLISHED).first()


def on_trial(rows: QuerySet[AnyVersion]) -> AnyVersion | None:
    return rows.filter(state=State.CANARY).first()


def before(rows: QuerySet[AnyVersion], current: AnyVersion) -> AnyVersion | None:
    """What a rollback of `current` brings back: the version in force before it was first."""
    origin = current.copy_of or current
    earlier = rows.filter(published_at__lt=origin.published_at).exclude(id=origin.id)
    return earlier.select_related("copy_of").order_by("-published_at").first()
