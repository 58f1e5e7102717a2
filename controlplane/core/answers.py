"""Answers of the API from what they tell of, and lists of them, whole or a page at a time.

A shape, declared once, names the attributes. In lists `after` is the last id that was seen, `limit`
how many more. No offsets: a row that is added or gone in the meantime moves no other row to another
page.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any, Generic, TypedDict, TypeVar, cast, get_type_hints
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet

from controlplane.kernel.ids import AnyId, prefix_of, public_id, uuid_asked

Answer = TypeVar("Answer")
LIMIT_DEFAULT = 20
LIMIT_MAX = 100
_LIMIT_CHARS_MAX = 4
NO_ITEM = {"after": "Must be the id of an item in this list."}

Row = TypeVar("Row")
AnyModel = TypeVar("AnyModel", bound=Model)


class Changed(TypedDict):
    """`changed` is false where there was nothing to change."""

    id: AnyId
    changed: bool


def answer_of(shape: type[Answer], source: object, **given: object) -> Answer:
    """A `TypedDict` in its own order: what is given, else the source's attribute of that name,
    or for an amount in `…_nano` that of its name without the unit.

    Ids become text, members of an enumeration their values; moments and days are the renderer's.
    Raises TypeError on a given name that the shape has not, and for a UUID in a field that declares
    no kind of id; AttributeError where the source lacks one.
    """
    names = hints(cast(Any, shape))
    if unknown := given.keys() - names.keys():
        raise TypeError(f"{shape.__name__} has no {', '.join(sorted(unknown))}")
    made = {name: given[name] if name in given else _read(source, name) for name in names}
    return cast(Answer, {name: _plain(value, names[name]) for name, value in made.items()})


def _read(source: object, name: str) -> object:
    plain = name.removesuffix("_nano")
    return getattr(source, name if plain == name or hasattr(source, name) else plain)


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


@dataclass(frozen=True)
class PageAsk:
    """Which rows: those that follow `after`, at most `limit` of them."""

    after: uuid.UUID | None = None
    limit: int = LIMIT_DEFAULT


FIRST_PAGE = PageAsk()


@dataclass(frozen=True)
class Page(Generic[Row]):
    """Some rows of a list, and whether it continues."""

    rows: list[Row]
    has_more: bool


def page_ask(params: Mapping[str, str], prefix: str = "") -> PageAsk:
    """What a query string asks for; raises ValidationError that names `after` or `limit`."""
    after, limit = params.get("after"), params.get("limit")
    return PageAsk(
        after=None if after is None else uuid_asked(after, prefix, ValidationError(NO_ITEM)),
        limit=LIMIT_DEFAULT if limit is None else _limit(limit),
    )


def page_read(rows: QuerySet[AnyModel], ask: PageAsk) -> Page[AnyModel]:
    """A page of `rows` by their `id`, newest first; read at once, inside its scope.

    `after` need not be among them: a row that is gone still has its place in the order.
    """
    if ask.after is not None:
        rows = rows.filter(id__lt=ask.after)
    found = list(rows.order_by("-id")[: ask.limit + 1])
    return Page(found[: ask.limit], len(found) > ask.limit)


def list_json(
    data: Sequence[Mapping[str, Any]], named: str = "id", *, has_more: bool = False
) -> dict[str, Any]:
    """The list as every client sees it; `named` is the field that names its rows in URLs."""
    first, last = (data[0].get(named), data[-1].get(named)) if data else (None, None)
    return {
        "object": "list",
        "data": data,
        "first_id": None if first is None else str(first),
        "last_id": None if last is None else str(last),
        "has_more": has_more,
    }


def _limit(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= _LIMIT_CHARS_MAX:
        limit = int(text)
        if 1 <= limit <= LIMIT_MAX:
            return limit
    raise ValidationError({"limit": f"Must be 1 to {LIMIT_MAX}."})
