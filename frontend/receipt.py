"""The route receipt: the gateway's JSON, as rows for a page. It is data, never markup."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec


@dataclass(frozen=True)
class Receipt:
    """Plain facts first, then the nodes that were weighed, cheapest first."""

    facts: list[tuple[str, str]] = field(default_factory=list)
    head: list[str] = field(default_factory=list)
    candidates: list[list[str]] = field(default_factory=list)


def read_receipt(data: bytes) -> Receipt | None:
    """None where routing left none, as for a refusal, or where it cannot be read."""
    if not data:
        return None
    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    # Told in its own part of the page.
    document.pop("miss", None)
    rows = [row for row in _list(document.pop("candidates", [])) if isinstance(row, dict)]
    head = list(rows[0]) if rows else []
    return Receipt(
        facts=[(_words(name), _text(value)) for name, value in document.items()],
        head=[_words(name) for name in head],
        candidates=[[_text(row.get(name)) for name in head] for row in rows],
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _words(name: str) -> str:
    if name == "cost_ms":
        return "Estimated time, ms"
    if name.endswith("_ms"):
        name = name.removesuffix("_ms") + ", ms"
    return name.replace("_", " ").capitalize()


def _text(value: object) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return msgspec.json.encode(value).decode()
