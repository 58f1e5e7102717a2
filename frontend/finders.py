"""A staticfiles finder that exposes one file of the plotly wheel and nothing else of it.

The file's address carries its version, so that browsers may keep it for ever.
"""

from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, overload

from django.contrib.staticfiles.finders import BaseFinder
from django.core.checks import CheckMessage, Error
from django.core.files.storage import FileSystemStorage

PLOTLY_FILE = "plotly.min.js"
PLOTLY_PATH = f"vendor/plotly-{metadata.version('plotly')}.min.js"


def plotly_file() -> Path:
    """Where the installed wheel keeps the script; its Python package is not imported."""
    distribution = metadata.distribution("plotly")
    return Path(str(distribution.locate_file(f"plotly/package_data/{PLOTLY_FILE}")))


class OneFileStorage(FileSystemStorage):
    """Knows one name; reads it from the wheel."""

    prefix = ""

    def path(self, name: str) -> str:
        """Place of the one file; raises FileNotFoundError for any other name."""
        if name != PLOTLY_PATH:
            raise FileNotFoundError(name)
        return str(plotly_file())


class PlotlyFinder(BaseFinder):
    """Finds `PLOTLY_PATH`."""

    storage = OneFileStorage()

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """A wheel without its script would leave every chart empty."""
        if plotly_file().is_file():
            return []
        return [
            Error("The plotly wheel lacks its script.", hint="Install it again.", id="sluice.E1")
        ]

    @overload
    def find(self, path: str, find_all: Literal[False] = ...) -> str | None: ...
    @overload
    def find(self, path: str, find_all: Literal[True]) -> list[str]: ...
    def find(self, path: str, find_all: bool = False) -> list[str] | str | None:
        """The file's place for its own path, nothing for others."""
        if path != PLOTLY_PATH:
            return [] if find_all else None
        place = str(plotly_file())
        return [place] if find_all else place

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[tuple[str, OneFileStorage]]:
        """The one path and its storage."""
        return [(PLOTLY_PATH, self.storage)]
