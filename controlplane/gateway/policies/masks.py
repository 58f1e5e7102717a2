"""Placeholders for what a model must not see, and what stands behind them, for one request."""

import json
import re
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

import msgspec

PLACEHOLDER = re.compile(r"\[[A-Z][A-Z0-9_]*_[0-9A-F]+\]")
DIGEST_BYTES = 4
# Of fields that say how a body is built: no text that a model reads.
STRUCTURE = frozenset({
    "$ref", "call_id", "data", "detail", "encrypted_content", "file_id", "format", "id",
    "image_url", "media_type", "model", "name", "pattern", "role", "signature", "status",
    "tool_call_id", "tool_use_id", "type", "url",
})  # fmt: skip
# Fields with JSON of the client's own, which names its fields as it likes, also in schemas; the
# field of a schema whose fields are schemas, and that with values for places of a template.
FREE = frozenset({"arguments", "const", "default", "enum", "example", "examples", "input"})
PROPERTIES, VARIABLES = "properties", "variables"
Change = Callable[[str, str], str]


class Masks(msgspec.Struct, frozen=True):
    """The `body` with its placeholders, the text behind each, and how many of each kind."""

    body: bytes
    values: dict[str, str]
    counts: dict[str, int]

    def restore(self, text: str) -> str:
        """A text with what stands behind its placeholders."""
        return PLACEHOLDER.sub(lambda found: self.values.get(found[0], found[0]), text)

    def restore_json(self, data: bytes) -> bytes:
        """The same of JSON, or a part of it."""
        escaped = msgspec.structs.replace(self, values=escapes(self.values))
        return escaped.restore(data.decode()).encode()

    def hide(self, data: bytes) -> bytes:
        """JSON with all that is masked masked again."""
        longest = sorted(self.values.items(), key=lambda pair: -len(pair[1]))

        def hidden(text: str, _: str) -> str:
            for placeholder, value in longest:
                text = text.replace(value, placeholder)
            return text

        return msgspec.json.encode(changed(msgspec.json.decode(data), hidden, ""))


def placeholder(kind: str, text: str, key: bytes) -> str:
    """The same for the same text, so that prefixes stay cached; without the key it says nothing."""
    digest = blake2b(f"{kind} {text}".encode("utf-8", "replace"), key=key, digest_size=DIGEST_BYTES)
    return f"[{kind.upper()}_{digest.hexdigest().upper()}]"


def escapes(values: dict[str, str]) -> dict[str, str]:
    """The same texts as they stand inside a text of JSON."""
    return {name: json.dumps(text, ensure_ascii=False)[1:-1] for name, text in values.items()}


def changed(value: Any, change: Change, path: str, *, free: bool = False) -> Any:
    """A value of JSON with its texts changed; `change` gets a text and its path.

    In a `free` object names of fields are texts, too. The arguments of calls are JSON in a text. A
    number that is changed as a whole becomes a text.
    """
    if isinstance(value, str):
        return change(value, path)
    if isinstance(value, list):
        return [
            changed(each, change, f"{path}[{place}]", free=free) for place, each in enumerate(value)
        ]
    if isinstance(value, dict):
        return dict(_changed_fields(value, change, path, free=free))
    if free and isinstance(value, int) and not isinstance(value, bool):
        made = change(str(value), path)
        return made if PLACEHOLDER.fullmatch(made) else value
    return value


def values_changed(values: Any, change: Change, path: str) -> Any:
    """The same of values for places of a template, whose names no model reads."""
    if not isinstance(values, dict):
        return values
    return {
        name: changed(each, change, f"{path}.{name}", free=True) for name, each in values.items()
    }


def _changed_fields(
    value: dict[str, Any], change: Change, path: str, *, free: bool
) -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        told = change(name, path) if free else name
        at = f"{path}.{told}".lstrip(".")
        if not free and name == PROPERTIES and isinstance(inner, dict):
            schemas = ((change(each, at), schema) for each, schema in inner.items())
            yield name, {each: changed(schema, change, f"{at}.{each}") for each, schema in schemas}
        else:
            yield told, _field(name, inner, change, at, free=free)


def _field(name: str, inner: Any, change: Change, path: str, *, free: bool) -> Any:
    if not free and name in STRUCTURE and not isinstance(inner, dict):
        return inner
    if name == "arguments" and isinstance(inner, str):
        try:
            read = msgspec.json.decode(inner)
        except (msgspec.DecodeError, RecursionError):
            return change(inner, path)
        made = changed(read, change, path, free=True)
        return inner if made == read else msgspec.json.encode(made).decode()
    if name == VARIABLES and not free:
        return values_changed(inner, change, path)
    return changed(inner, change, path, free=free or name in FREE)
