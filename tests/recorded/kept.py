"""The kept records as files, one for each kind, a line of JSON for each case."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from difflib import unified_diff
from pathlib import Path
from typing import Any

from tests.recorded.play import Record

FOLDER = Path(__file__).with_name("kept")
DIFFERENCES_SHOWN = 12
LINES_SHOWN = 60
LINE_CHARS_MAX = 120
PIECE = re.compile(r"(?<=[,}\]])(?=[\"{\[])")


def keep(records: Iterable[Record]) -> int:
    """Write all anew; returns the bytes."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.jsonl"):
        path.unlink()
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for record in records:
        kinds[record["kind"]].append(json.dumps(record, ensure_ascii=False) + "\n")
    return sum(_path(kind).write_text("".join(lines)) for kind, lines in kinds.items())


def kept() -> dict[str, Record]:
    """All records by the case's name."""
    # Not by `splitlines`: some answers have characters that end lines elsewhere.
    lines = [line for path in FOLDER.glob("*.jsonl") for line in path.read_text().split("\n")]
    return {record["case"]: record for record in map(json.loads, filter(None, lines))}


def differences(records: Iterable[Record]) -> list[str]:
    """What is not as it was kept, one text for each case, as a diff from the kept to the new."""
    before = kept()
    found = []
    for record in records:
        # As it would be read back.
        now = json.loads(json.dumps(record))
        was = before.pop(record["case"], None)
        if now != was:
            found.append(_difference(record["case"], was, now))
    return found + [f"{name}: was kept, and is no longer sent" for name in before]


def report(found: list[str]) -> str:
    """The first differences, and how many there are."""
    shown = "\n\n".join(found[:DIFFERENCES_SHOWN])
    return f"{len(found)} cases differ from what is kept:\n\n{shown}"


def _difference(name: str, was: Record | None, now: Record) -> str:
    if was is None:
        return f"{name}: nothing is kept of it; record anew"
    if was.get("sent") != now.get("sent"):
        return f"{name}: another request is sent than was recorded; record anew"
    lines = unified_diff(
        _lines(was), _lines(now), f"{name}, kept", f"{name}, now", lineterm="", n=2
    )
    return "\n".join(list(lines)[:LINES_SHOWN])


def _lines(record: Record) -> list[str]:
    return json.dumps(_cut(record), indent=1, ensure_ascii=False).split("\n")


def _cut(value: Any) -> Any:
    """With long texts in pieces, so that a diff shows the piece that differs."""
    if isinstance(value, dict):
        return {name: _cut(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_cut(each) for each in value]
    if isinstance(value, str) and len(value) > LINE_CHARS_MAX:
        parts = [part for part in PIECE.split(value) if part]
        return [part[at : at + LINE_CHARS_MAX] for part in parts
                for at in range(0, len(part), LINE_CHARS_MAX)]  # fmt: skip
    return value


def _path(kind: str) -> Path:
    return FOLDER / f"{kind.replace(', ', '-').replace(' ', '-')}.jsonl".replace("'", "")
