"""No pinned version is one that a kept advisory names and a later release mends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.release.advisories import KEPT, LOCKS, known, pins, ranges

LOCK = "requests[socks]==2.0.0 ; python_version < '4' \\\n    --hash=sha256:00\nother==1.0\n"


def kept_of(*pairs: list[str]) -> dict[str, Any]:
    return {"packages": {"requests": [{"id": "PYSEC-1", "ranges": [*pairs]}]}}


def test_nothing_that_is_pinned_is_known_to_be_faulty() -> None:
    locks = {path.name: path.read_text() for path in LOCKS.glob("*.txt")}
    assert len(locks) > 10
    kept = json.loads(KEPT.read_text())
    # Else the check would say nothing.
    assert {"django", "aiohttp", "cryptography", "jinja2"} <= kept["packages"].keys()
    assert [one for one in known(locks, kept) if one.fixed] == []


@pytest.mark.parametrize(
    ("pairs", "fixed"),
    [
        ([["0", "2.0.1"]], ["2.0.1"]),
        ([["0", "2.0.0"]], []),
        ([["2.0.0", ""]], [""]),
        ([["2.0.1", ""]], []),
        ([["0", "1.0"], ["1.5", "3"]], ["3"]),
    ],
)
def test_a_range_has_its_begin_and_not_its_end(pairs: list[list[str]], fixed: list[str]) -> None:
    assert [one.fixed for one in known({"a.txt": LOCK}, kept_of(*pairs))] == fixed


def test_locks_and_advisories_are_read_as_they_are_written() -> None:
    assert [*pins(LOCK)] == [("requests", "2.0.0"), ("other", "1.0")]
    events = [{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "2"}]
    told = {"ranges": [{"type": "GIT", "events": []}, {"type": "ECOSYSTEM", "events": events}]}
    assert ranges(told) == [["0", "1.2"], ["2", ""]]
