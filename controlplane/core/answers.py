"""Answers of the API from what they tell of: a shape, declared once, names the attributes."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Any, TypeVar, cast
from uuid import UUID

Answer = TypeVar("Answer")


def answer_of(shape: type[Answer], source: object, **given: object) -> Answer:
    """A `TypedDict` in its own order: what is given, else the source's attribute of that name.

    Ids, moments and days become text, members of an enumeration their values; a field that is
    declared as `datetime` is left to the renderer. Raises TypeError on a given name that the shape
    has not, AttributeError where the source lacks one.
    """
    names = shape.__annotations__
    if unknown := given.keys() - names.keys():
        raise TypeError(f"{shape.__name__} has no {', '.join(sorted(unknown))}")
    made = {name: given[name] if name in given else getattr(source, name) for name in names}
    return cast(Answer, {name: _plain(value, str(names[name])) for name, value in made.items()})


def _plain(value: Any, declared: str) -> Any:
    if "datetime" in declared:
        return value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    return value.value if isinstance(value, Enum) else value
