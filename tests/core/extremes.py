"""Values that no column keeps, and where in a body, a document or a form they can be put."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any

# Of addresses: between what their form allows and what is kept. Then longer than any column.
EMAIL = "a" * 60 + "@" + ("b" * 60 + ".") * 4 + "org"
TEXTS: tuple[object, ...] = (EMAIL, f"https://example.org/{'a' * 2_000}", "ä" * 2_000)
NUMBERS: tuple[object, ...] = (2**31, -(2**31) - 1, 2**63, 10**30, 1e300)
Path = tuple[str | int, ...]
Schema = dict[str, Any]


class Shapes:
    """Schemas of an OpenAPI description, references followed."""

    def __init__(self, description: dict[str, Any]) -> None:
        self._components: dict[str, Schema] = description["components"]["schemas"]

    def ways(self, schema: Schema) -> Iterator[Schema]:
        """Each single type that a value may have."""
        if "$ref" in schema:
            yield from self.ways(self._components[schema["$ref"].rpartition("/")[2]])
        elif "anyOf" in schema:
            for one in schema["anyOf"]:
                yield from self.ways(one)
        else:
            yield schema

    def least(self, schema: Schema) -> Any:
        """A value of the shape with nothing that can be left out."""
        one = next(self.ways(schema))
        if "enum" in one:
            return one["enum"][0]
        if one.get("type") == "object":
            fields = one.get("properties", {})
            return {name: self.least(fields[name]) for name in one.get("required", ())}
        plain = {"array": [], "boolean": False, "integer": 1, "null": None}
        return plain.get(one.get("type", ""), "x")

    def beyond(self, schema: Schema, at: Path = ()) -> Iterator[tuple[Path, object]]:
        """(place, value) for each field, in objects and lists below, and each extreme of it."""
        for one in self.ways(schema):
            kind = one.get("type")
            if kind == "object" and "properties" in one:
                for name, inner in one["properties"].items():
                    yield from self.beyond(inner, (*at, name))
            elif kind == "object":
                yield from (((*at, "any"), value) for value in TEXTS + NUMBERS)
            elif kind == "array":
                yield from self.beyond(one.get("items", {}), (*at, 0))
            elif kind in ("integer", "number"):
                yield from ((at, value) for value in NUMBERS)
            elif kind == "string" and "enum" not in one:
                yield from ((at, value) for value in TEXTS)
            elif kind is None and "enum" not in one:
                yield from ((at, value) for value in TEXTS + NUMBERS)

    def put(self, schema: Schema, body: Any, at: Path, value: object) -> Any:
        """A copy of a body with a value at a place, and the least that leads there."""
        if not at:
            return value
        head, rest = at[0], at[1:]
        kind = "array" if head == 0 else "object"
        one = next(each for each in self.ways(schema) if each.get("type") == kind)
        if head == 0:
            inner = one.get("items", {})
            first = body[0] if isinstance(body, list) and body else self.least(inner)
            return [self.put(inner, first, rest, value)]
        whole = body if isinstance(body, dict) else self.least(one)
        inner = one.get("properties", {}).get(head, {})
        return {**whole, head: self.put(inner, whole.get(head), rest, value)}


def beyond_document(document: Any, at: Path = ()) -> Iterator[tuple[Path, object]]:
    """(place, value) for each value of a document, of a list's things only the first's."""
    if isinstance(document, dict) and document:
        for name, inner in document.items():
            yield from beyond_document(inner, (*at, name))
    elif isinstance(document, list) and document:
        yield from beyond_document(document[0], (*at, 0))
    elif not isinstance(document, bool):
        if not isinstance(document, str):
            yield from ((at, value) for value in NUMBERS[:1] + NUMBERS[2:3])
        if not isinstance(document, int):
            yield from ((at, value) for value in TEXTS[::2])


def changed(document: Any, at: Path, value: object) -> Any:
    """A copy of a document with another value at a place."""
    if not at:
        return value
    copy = document.copy()
    copy[at[0]] = changed(document[at[0]], at[1:], value)
    return copy


@dataclass
class Form:
    """A form of a page: where it goes, its fields with what they hold, what would be too much."""

    method: str
    address: str
    fields: dict[str, str] = field(default_factory=dict)
    beyond: dict[str, str] = field(default_factory=dict)


class Forms(HTMLParser):
    """The forms of a page; a dialog's once for each button that opens it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[Form] = []
        self._dialogs: dict[str, Form] = {}
        self._opened: list[tuple[str, str]] = []
        self._dialog = self._choice = ""
        self.feed(page)
        for dialog, address in self._opened:
            if dialog in self._dialogs:
                self.found.append(replace(self._dialogs[dialog], address=address))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A form begins, or a field is of the last one; of a choice the first option counts."""
        told = {name: value or "" for name, value in attrs}
        if "data-action" in told:
            self._opened.append((told["data-opens"], told["data-action"]))
        if tag == "dialog":
            self._dialog = told.get("id", "")
        elif tag == "form":
            form = Form(told.get("method", "get").upper(), told.get("action", ""))
            self.found.append(form)
            if "data-action-target" in told:
                self._dialogs[self._dialog] = form
        elif not self.found:
            return
        elif tag in ("input", "select", "textarea") and told.get("name"):
            self._choice = told["name"]
            self.found[-1].fields.setdefault(self._choice, told.get("value", ""))
            if tag != "select" and told.get("type") not in ("hidden", "checkbox", "radio"):
                self.found[-1].beyond[self._choice] = _too_much(told)
        elif tag == "option" and not self.found[-1].fields.get(self._choice):
            self.found[-1].fields[self._choice] = told.get("value", "")


def _too_much(told: dict[str, str]) -> str:
    """For one field, by its attributes."""
    if told.get("type") == "email":
        return EMAIL
    numeric = told.get("type") == "number" or told.get("inputmode") in ("numeric", "decimal")
    return str(2**63) if numeric else "ä" * 2_000
