"""Plain values to typed shapes, with every complaint at the path of its field."""

import re
from typing import TypeVar

import msgspec
from django.core.exceptions import ValidationError

# As JSON writes it; PostgreSQL's does not take it.
NUL = rb"\u0000"
_PLACE = re.compile(r"(?P<told>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_FIELD_NAMED = re.compile(r"Object (?:missing required|contains unknown) field `(?P<name>[^`]*)`")
Shape = TypeVar("Shape")


def read_shape(value: object, shape: type[Shape], *, field: str) -> Shape:
    """The value as `shape`; raises ValidationError, by path: `body.messages[0].role`."""
    try:
        if NUL in msgspec.json.encode(value):
            raise ValidationError({field: "Must not contain the NUL character."})
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        path, text = complaint(str(error))
        raise ValidationError({f"{field}{path}".lstrip("."): text}) from error
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise ValidationError({field: f"Cannot be stored as JSON: {error}."}) from error


def complaint(message: str) -> tuple[str, str]:
    """Path below the value (`.messages[0].role`) and what is wrong there, in msgspec's words."""
    path, text, named = place(message)
    if not named:
        return path, f"{text}."
    word = "Missing." if "missing" in text else "Unknown field."
    return f"{path}.{named}", word


def place(message: str) -> tuple[str, str, str]:
    """Of msgspec's message the path, the rest, and the field that it calls missing or unknown."""
    found = _PLACE.fullmatch(message)
    text, path = (found["told"], found["path"] or "") if found else (message, "")
    named = _FIELD_NAMED.match(text)
    return path, text, named["name"] if named else ""
