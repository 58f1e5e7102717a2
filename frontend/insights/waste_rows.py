"""Findings of each key for page and CSV, each beside the same of the days before."""

from dataclasses import dataclass

from controlplane.insights.hygiene import KeyHygiene, Waste, WasteTotals
from controlplane.kernel.insights.hygiene import KINDS
from controlplane.kernel.money import usd_short
from frontend.insights.days import change
from frontend.shared import formats


@dataclass(frozen=True)
class WasteRow:
    """A finding; `earlier` is None where nothing is compared."""

    now: Waste
    earlier: Waste | None

    @property
    def requests_before(self) -> str:
        if self.earlier is None:
            return ""
        words = formats.count(self.earlier.requests)
        return f"before: {words}{change(self.now.requests, self.earlier.requests)}"

    @property
    def saves_before(self) -> str:
        if self.earlier is None:
            return ""
        return f"before: {usd_short(self.earlier.nano)}{change(self.now.nano, self.earlier.nano)}"


@dataclass(frozen=True)
class KeyRows:
    """A key with its findings, those included that are no more."""

    key: KeyHygiene
    earlier: KeyHygiene | None
    wastes: list[WasteRow]

    @property
    def before(self) -> str:
        if self.earlier is None:
            return ""
        requests, nano = self.earlier.requests, self.earlier.nano
        return (
            f"before: {formats.count(requests)} requests{change(self.key.requests, requests)},"
            f" {usd_short(nano)}{change(self.key.nano, nano)}"
        )


def key_rows(found: WasteTotals, earlier: WasteTotals | None) -> list[KeyRows]:
    """Each key of these days, in their order, beside itself in those before."""
    if earlier is None:
        return [KeyRows(one, None, [WasteRow(w, None) for w in one.wastes]) for one in found.keys]
    before = {one.key: one for one in earlier.keys}
    return [_beside(one, before.get(one.key) or _nothing(one)) for one in found.keys]


def _beside(one: KeyHygiene, earlier: KeyHygiene) -> KeyRows:
    before = {waste.kind: waste for waste in earlier.wastes}
    now = {waste.kind: waste for waste in one.wastes}
    kinds = [*now, *(kind for kind in KINDS if kind in before and kind not in now)]
    rows = [
        WasteRow(now.get(kind) or Waste(kind, 0, 0, 0), before.get(kind) or Waste(kind, 0, 0, 0))
        for kind in kinds
    ]
    return KeyRows(one, earlier, rows)


def _nothing(one: KeyHygiene) -> KeyHygiene:
    return KeyHygiene(key=one.key, label=one.label, requests=0, looked=0, tokens=0, nano=0)
