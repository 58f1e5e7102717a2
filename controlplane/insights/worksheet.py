"""One pool's worksheet from what was measured, with what a query asks instead."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from controlplane.insights.capacity import MeasuredLoad
from controlplane.kernel.insights.capacity import CapacitySheet, Engine, Load, make_sheet

HUNDRED = 100.0


@dataclass(frozen=True)
class Field:
    """One figure that may be asked for instead: its bounds, what was measured, what is asked."""

    name: str
    label: str
    unit: str
    least: float
    most: float
    measured: float
    given: float | None

    @property
    def value(self) -> float:
        return self.measured if self.given is None else self.given


@dataclass(frozen=True)
class Worksheet:
    """The filled-in worksheet; `unread` are fields whose value was no number within bounds.

    `sheet` is None, and there are no fields, where nothing was measured.
    """

    measured: MeasuredLoad
    fields: tuple[Field, ...] = ()
    sheet: CapacitySheet | None = None
    unread: tuple[Field, ...] = ()


def fill_in(measured: MeasuredLoad, query: Mapping[str, str]) -> Worksheet:
    """Reckon; `query` maps names of fields to text."""
    load, engine = measured.load, measured.engine
    if load is None or engine is None:
        return Worksheet(measured)
    fields = _fields(measured, load, engine, query)
    asked = {field.name: field.value for field in fields}
    sheet = make_sheet(
        Load(
            per_s=asked["rate"],
            tokens_in=asked["in"],
            tokens_out=asked["out"],
            cached_share=asked["cached"] / HUNDRED,
        ),
        msgspec.structs.replace(engine, batch=asked["batch"]),
        nodes=int(asked["nodes"]),
        cards_per_node=measured.pool.cards_per_node,
    )
    unread = tuple(field for field in fields if query.get(field.name) and field.given is None)
    return Worksheet(measured, fields, sheet, unread)


def _fields(
    measured: MeasuredLoad, load: Load, engine: Engine, query: Mapping[str, str]
) -> tuple[Field, ...]:
    rows = (
        ("rate", "Peak rate", "requests/s", 0.0, 1e6, load.per_s),
        ("in", "Tokens in", "a request", 1.0, 1e6, load.tokens_in),
        ("out", "Tokens out", "a request", 1.0, 1e6, load.tokens_out),
        ("cached", "Of the prompt cached", "%", 0.0, HUNDRED, HUNDRED * load.cached_share),
        ("batch", "Batching factor", "requests a step", 1.0, 1e5, engine.batch),
        ("nodes", "Nodes", "ready", 0.0, 1e5, float(measured.nodes)),
    )
    return tuple(Field(*row, _number(query.get(row[0], ""), row[3], row[4])) for row in rows)


def _number(text: str, least: float, most: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if least <= value <= most else None
