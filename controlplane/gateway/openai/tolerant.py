"""Bodies as clients send them: null is not sent, and what nothing here reads is left out and named.

It runs only where the typed decoder has refused a body. A struct says in `HARMLESS` which fields of
an API change nothing here, in `REFUSED` which cannot be left out without a loss, and in `RENAMED`
what other servers call fields of its own, as `name` or `outer.name`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from controlplane.gateway.refusal import bad_field

IGNORED_MAX = 32
PATH_CHARS_MAX = 64
# Of the decoder's complaints, those that may be about a field which is as good as not sent.
TOLERABLE = re.compile(r"unknown field|got `null`")
_UNSAFE = re.compile(r"[^\w.\[\]-]", re.ASCII)
Body = TypeVar("Body", bound=msgspec.Struct)


class LeftOut(NamedTuple):
    """Paths of fields that nothing acts on, the first ones, fit for a header.

    `unknown` is the first of them that no API here has; empty without one.
    """

    ignored: tuple[str, ...] = ()
    unknown: str = ""


class _Shape(NamedTuple):
    """Where structs stand in a type: by the value of their `tag`, and in the items of a list.

    Of each struct the names of its fields, and what of these has structs in it.
    """

    tag: str
    structs: dict[str, tuple[type, dict[str, _Shape | None]]]
    items: _Shape | None


class _Reading:
    """One body on its way to a type."""

    def __init__(self) -> None:
        self.ignored: list[str] = []
        self.unknown = ""

    def tidied(self, value: Any, shape: _Shape | None, path: str) -> Any:
        """The value without nulls and without fields that its structs do not have."""
        if isinstance(value, list) and shape is not None and shape.items is not None:
            items = shape.items
            return [self.tidied(each, items, f"{path}[{at}]") for at, each in enumerate(value)]
        if not isinstance(value, dict) or shape is None:
            return value
        tag = value.get(shape.tag) if shape.tag else ""
        cls, fields = shape.structs.get(tag, (None, {})) if isinstance(tag, str) else (None, {})
        if cls is None:
            return value
        made: dict[str, Any] = {}
        for name, inner in _renamed(value, getattr(cls, "RENAMED", {}), fields).items():
            at = f"{path}.{name}" if path else name or "?"
            if name in fields:
                made[name] = self.tidied(inner, fields[name], at)
            else:
                self._leave(at, name, cls)
        return made

    def _leave(self, path: str, name: str, cls: type) -> None:
        if name in getattr(cls, "REFUSED", ()):
            raise bad_field(path, f"'{path}' is not supported.", "unsupported_parameter")
        if len(self.ignored) < IGNORED_MAX:
            self.ignored.append(_UNSAFE.sub("?", path)[:PATH_CHARS_MAX])
        if name not in getattr(cls, "HARMLESS", ()) and not self.unknown:
            self.unknown = path[:PATH_CHARS_MAX]


def read_tolerantly(data: bytes, cls: type[Body]) -> tuple[Body, LeftOut]:
    """A body of the type and what was left out; raises msgspec's errors and `Refusal` (400)."""
    reading = _Reading()
    tidied = reading.tidied(msgspec.json.decode(data), _shape_of(cls), "")
    return msgspec.convert(tidied, cls), LeftOut(tuple(reading.ignored), reading.unknown)


def _renamed(
    value: dict[str, Any], names: Mapping[str, str], fields: Container[str]
) -> dict[str, Any]:
    """What was sent, under its names here; a field's own name wins."""
    made = {name: inner for name, inner in value.items() if inner is not None}
    for other in names.keys() & made.keys():
        outer, _, inner = names[other].partition(".")
        if outer not in fields:
            continue
        given = made.pop(other)
        if not inner:
            made.setdefault(outer, given)
        elif isinstance(beside := made.get(outer, {}), dict):
            made[outer] = {inner: given, **beside}
    return made


@cache
def _shape_of(cls: type) -> _Shape | None:
    return _shape(inspect.type_info(cls))


def _shape(info: inspect.Type) -> _Shape | None:
    """None where there is no struct in it."""
    shape = _Shape("", {}, None)
    for kind in info.types if isinstance(info, inspect.UnionType) else (info,):
        if isinstance(kind, inspect.StructType) and kind.forbid_unknown_fields:
            fields = {each.encode_name: _shape(each.type) for each in kind.fields}
            if kind.tag_field:
                shape, fields[kind.tag_field] = shape._replace(tag=kind.tag_field), None
            shape.structs[str(kind.tag or "")] = kind.cls, fields
        elif isinstance(kind, inspect.ListType):
            shape = shape._replace(items=_shape(kind.item_type))
    return shape if shape.structs or shape.items else None
