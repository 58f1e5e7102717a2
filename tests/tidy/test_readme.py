"""The README's table of stages is the table of spans."""

from __future__ import annotations

import re
from pathlib import Path

from controlplane.kernel.spans import SPANS

README = Path(__file__).parents[2] / "README.md"
ROW = re.compile(r"^\|\s*`?(s\d_\w+(?:\.\w+)?)`?\s*\|\s*(.*?)\s*\|", re.MULTILINE)


def test_readme_lists_every_span_in_order() -> None:
    rows = ROW.findall(README.read_text())
    assert [name for name, _ in rows] == [span.name for span in SPANS]


def test_readme_says_of_each_what_the_table_says() -> None:
    told = dict(ROW.findall(README.read_text()))
    assert told == {span.name: span.what for span in SPANS}
