"""Prometheus' text format: counters, gauges and classic histograms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Literal

from inference.contract.version import VERSION

Kind = Literal["counter", "gauge", "histogram"]
Labels = Mapping[str, str]


class Exposition:
    """A page of metric families in the making; `series` is how many lines of figures it has."""

    def __init__(self) -> None:
        self.series = 0
        self._lines: list[str] = []

    def family(self, name: str, kind: Kind, text: str) -> Family:
        """Begin a family; its samples must follow before the next one begins."""
        self._lines += (f"# HELP {name} {text}", f"# TYPE {name} {kind}")
        return Family(self, name)

    def one(self, name: str, kind: Kind, text: str, value: float) -> None:
        self.family(name, kind, text).add({}, value)

    def build(self) -> None:
        """Which release tells this page; a process says it once."""
        family = self.family("sluice_build_info", "gauge", "1, with the release as its label")
        family.add({"version": VERSION}, 1)

    def put(self, line: str) -> None:
        self._lines.append(line)
        self.series += 1

    def to_bytes(self) -> bytes:
        return "\n".join([*self._lines, ""]).encode()


class Family:
    """Samples under one name."""

    def __init__(self, page: Exposition, name: str) -> None:
        self._page = page
        self._name = name

    def add(self, labels: Labels, value: float) -> None:
        self._page.put(f"{self._name}{_braces(_pairs(labels))} {_number(value)}")

    def add_all(self, label: str, values: Iterable[tuple[str, float]]) -> None:
        for name, value in values:
            self.add({label: name}, value)

    def add_histogram(
        self, labels: Labels, bounds: Sequence[str], counts: Sequence[int], total: float
    ) -> None:
        """A classic histogram: `counts` has one more than `bounds`, for what is above them all."""
        self.add_buckets(labels, bounds, counts)
        own = _braces(_pairs(labels))
        self._page.put(f"{self._name}_sum{own} {_number(total)}")
        self._page.put(f"{self._name}_count{own} {sum(counts)}")

    def add_buckets(self, labels: Labels, bounds: Sequence[str], counts: Sequence[int]) -> None:
        own = _pairs(labels)
        for bound, count in zip([*bounds, "+Inf"], accumulate(counts), strict=True):
            bucket = _braces([*own, f'le="{bound}"'])
            self._page.put(f"{self._name}_bucket{bucket} {count}")


def _pairs(labels: Labels) -> list[str]:
    return [f'{name}="{_escaped(value)}"' for name, value in labels.items()]


def _braces(pairs: list[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    """Integers whole: money in nano-USD must not become 1.2e+18."""
    return str(value) if isinstance(value, int) else repr(float(value))
