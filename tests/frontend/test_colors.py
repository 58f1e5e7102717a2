"""Contrast of the colour tokens, light and dark, as WCAG measures it."""

import re
from pathlib import Path

import pytest

import frontend

TOKENS = Path(frontend.__file__).parent / "static" / "sluice" / "css" / "tokens.css"
PAIR = re.compile(r"--([a-z0-9-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\)")
TEXT_LEAST, MARK_LEAST = 4.5, 3.0


def _luminance(color: str) -> float:
    parts = (int(color[place : place + 2], 16) / 255 for place in (0, 2, 4))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_and_marks_can_be_read(theme: int) -> None:
    found = {name: pair[theme] for name, *pair in PAIR.findall(TOKENS.read_text())}
    for ground in ("page", "raised"):
        for name in ("text", "muted", "link", "ok", "warn", "bad"):
            assert _contrast(found[name], found[ground]) >= TEXT_LEAST, (name, ground)
    for name, ground in (
        ("ok", "ok-soft"), ("warn", "warn-soft"), ("bad", "bad-soft"), ("link", "link-soft"),
        ("text", "sunken"), ("on-link", "link"),
    ):  # fmt: skip
        assert _contrast(found[name], found[ground]) >= TEXT_LEAST, (name, ground)
    for name in (name for name in found if name.startswith("place-")):
        assert _contrast(found["on-place"], found[name]) >= TEXT_LEAST, name
    for name in ("control", "p50", "p95", "p99", *(f"stage-{number}" for number in range(1, 8))):
        assert _contrast(found[name], found["page"]) >= MARK_LEAST, name
