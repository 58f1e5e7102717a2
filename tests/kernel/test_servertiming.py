"""What a client says that it did before the call, in `Server-Timing` syntax."""

from __future__ import annotations

import pytest

from controlplane.kernel.servertiming import (
    DURATION_MS_MAX,
    ENTRIES_MAX,
    NAME_CHARS_MAX,
    Before,
    read_server_timing,
)


def test_names_and_durations_are_read_and_descriptions_are_not() -> None:
    header = 'retrieval;dur=53.2, rerank; desc="a, b; dur=9" ;dur=12, tools;dur="3.5"'
    assert read_server_timing(header) == [
        Before("retrieval", 53.2),
        Before("rerank", 12.0),
        Before("tools", 3.5),
    ]


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "cache",
        ";dur=1",
        "two words;dur=1",
        "a;dur=-1",
        "a;dur=1e3",
        "a;duration=1",
        f"{'a' * (NAME_CHARS_MAX + 1)};dur=1",
        f"a;dur={DURATION_MS_MAX * 2}",
    ],
)
def test_what_cannot_be_is_left_out(entry: str) -> None:
    assert read_server_timing(f"{entry}, good;dur=1") == [Before("good", 1.0)]


def test_there_is_a_bound() -> None:
    assert len(read_server_timing(", ".join(["a;dur=1"] * 100))) == ENTRIES_MAX
    assert read_server_timing("x" * 1_000_000) == []
