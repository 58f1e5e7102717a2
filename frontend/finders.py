"""A staticfiles finder that exposes plotly's script, compressed, and nothing else.

The file's address carries its version, so that browsers may keep it for ever.
"""

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, overload

from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder
from django.core.checks import CheckMessage, Error
from django.core.files.storage import FileSystemStorage

PLOTLY_PATH = "vendor/plotly-cartesian-4.1.1.min.js"
SCRIPT = Path(__file__).parent / PLOTLY_PATH


def plotly_file() -> Path:
    """The copy with its compressed twin beside it, which WhiteNoise serves; else the script."""
    copy = settings.DATA_DIR / PLOTLY_PATH
    return copy if copy.with_name(copy.name + ".gz").is_file() else SCRIPT


def known_files() -> dict[str, Path]:
    """Static path to place: the script, and its compressed twin once that is made."""
    script = plotly_file()
    twin = script.with_name(script.name + ".gz")
    return {PLOTLY_PATH: script} | ({PLOTLY_PATH + ".gz": twin} if twin.is_file() else {})


def compress_plotly() -> Path:
    """Copy the script into the data folder and compress it there, unless that is done."""
    copy: Path = settings.DATA_DIR / PLOTLY_PATH
    twin = copy.with_name(copy.name + ".gz")
    if not twin.is_file():
        copy.parent.mkdir(parents=True, exist_ok=True)
        script = SCRIPT.read_bytes()
        copy.write_bytes(script)
        # Written aside and moved, so that a half-written twin is never served.
        half = twin.with_suffix(".new")
        half.write_bytes(gzip.compress(script, mtime=0))
        half.replace(twin)
    return copy


class OneFileStorage(FileSystemStorage):
    """Knows the script and its compressed twin, and no other name."""

    prefix = ""

    def path(self, name: str) -> str:
        place = known_files().get(name)
        if place is None:
            raise FileNotFoundError(name)
        return str(place)


class PlotlyFinder(BaseFinder):
    """Finds `PLOTLY_PATH`."""

    storage = OneFileStorage()

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        if plotly_file().is_file():
            return []
        return [Error("Plotly's script is missing.", hint="Install Sluice again.", id="sluice.E1")]

    @overload
    def find(self, path: str, find_all: Literal[False] = ...) -> str | None: ...
    @overload
    def find(self, path: str, find_all: Literal[True]) -> list[str]: ...
    def find(self, path: str, find_all: bool = False) -> list[str] | str | None:
        """The file's place for its own path, nothing for others."""
        place = known_files().get(path)
        if find_all:
            return [str(place)] if place else []
        return str(place) if place else None

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[tuple[str, OneFileStorage]]:
        """The script, and its compressed twin where it is there."""
        return [(path, self.storage) for path in known_files()]
