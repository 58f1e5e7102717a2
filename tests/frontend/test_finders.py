"""The Plotly finder: one file, as it was published."""

import hashlib
from pathlib import Path

import pytest

from frontend.finders import PLOTLY_PATH, SCRIPT, OneFileStorage, PlotlyFinder


def test_the_finder_exposes_plotly_alone_as_it_was_published() -> None:
    finder = PlotlyFinder()
    found = finder.find(PLOTLY_PATH)
    assert found is not None
    digest = hashlib.sha256(Path(found).read_bytes()).hexdigest()
    assert f"`{digest}`" in (SCRIPT.parent / "README.md").read_text()
    assert finder.find("vendor/other.js") is None
    assert finder.find("../datasets/iris.csv", find_all=True) == []
    assert [name for name, _ in finder.list(None)] == [PLOTLY_PATH]
    assert finder.check() == []
    with pytest.raises(FileNotFoundError):
        OneFileStorage().path("plotly.min.js")
