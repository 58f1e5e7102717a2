"""What may be said in policies, and what is wrong with them by path."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controlplane.kernel.policies.terms import Policies, complaints


def read(**fields: Any) -> Policies:
    return msgspec.convert(fields, Policies)


def test_without_any_nothing_is_read() -> None:
    assert not read().reads and not read(tools_max=0, require_max_tokens=True).reads
    assert read(personal={"ip": "refuse"}).reads
    assert msgspec.json.encode(read()) == b"{}"


def test_what_is_wrong_with_patterns_is_told_by_path() -> None:
    good = {"name": "a", "pattern": "x+"}
    assert complaints(read(patterns=[good])) == {}
    found = complaints(read(patterns=[good, {"name": "b", "pattern": "("}, good]))
    assert set(found) == {"patterns[1].pattern", "patterns[2].name"}
    large = [{"name": f"n{n}", "pattern": r"\pL{60}"} for n in range(8)]
    assert set(complaints(read(patterns=large))) == {"patterns"}


@pytest.mark.parametrize(
    "fields",
    [
        {"tools_max": -1}, {"calls_max": 0}, {"unstreamed_tokens_max": 0}, {"unknown": 1},
        {"personal": {"email": "hide"}}, {"personal": {"name": "mask"}},
        {"patterns": [{"name": "A", "pattern": "a"}]}, {"patterns": [{"name": "a", "pattern": ""}]},
        {"patterns": [{"name": "a", "pattern": "a"}] * 17},
    ],
)  # fmt: skip
def test_what_is_out_of_bounds_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(**fields)
