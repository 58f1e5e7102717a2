"""Answers of the API from what they tell of: a shape, declared once, names the attributes."""

from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any, TypedDict, TypeVar, cast, get_type_hints
from uuid import UUID

from controlplane.kernel.ids import AnyId, prefix_of, public_id

Answer = TypeVar("Answer")


class Changed(TypedDict):
    """`changed` is false where there was nothing to change."""

    id: AnyId
    changed: bool


def answer_of(shape: type[Answer], source: object, **given: object) -> Answer:
    """A `TypedDict` in its own order: what is given, else the source's attribute of that name.

    Ids become text, members of an enumeration their values; moments and days are the renderer's.
    Raises TypeError on a given name that the shape has not, and for a UUID in a field that declares
    no kind of id; AttributeError where the source lacks one.
    """
    names = hints(cast(Any, shape))
    if unknown := given.keys() - names.keys():
        raise TypeError(f"{shape.__name__} has no {', '.join(sorted(unknown))}")
    made = {name: given[name] if name in given else getattr(source, name) for name in names}
    return cast(Answer, {name: _plain(value, names[name]) for name, value in made.items()})


@cache
def hints(shape: Any) -> dict[str, Any]:
    """The types of a shape's fields, with the kinds of ids."""
    return get_type_hints(shape, include_extras=True)


def moment_text(moment: datetime) -> str:
    """RFC 3339 in UTC; fractions of a second where there are some."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _plain(value: Any, declared: Any) -> Any:
    if isinstance(value, UUID):
        if not (prefix := prefix_of(declared)):
            raise TypeError(f"{declared} is no kind of id")
        return public_id(prefix, value)
    return value.value if isinstance(value, Enum) else value
