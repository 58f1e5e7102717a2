"""Charges summed by hour or day, some at a time, and split into kinds of tokens exactly.

A group's tokens at its prices make pico-USD; the ledger rounded each line to nano-USD once. What
lies between is a row of its own, so that the rows of a group sum to what the ledger charged.
"""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, cast

from controlplane.billing.exports.models import ExportGrain
from controlplane.billing.exports.pages.scope import Scope
from controlplane.billing.ledger.hours import Dimension, HourSum, hours
from controlplane.kernel.money import PICO_PER_NANO, nano_from_pico
from controlplane.telemetry.reading import bounded_read

STEPS = {ExportGrain.HOUR: timedelta(hours=1), ExportGrain.DAY: timedelta(days=1)}
# What one page reads: as many groups at most as a day has keys, models and prices, a few times.
WINDOWS = {ExportGrain.HOUR: timedelta(hours=6), ExportGrain.DAY: timedelta(days=1)}
UNCACHED, CACHED, OUTPUT, ROUNDING = "uncached_input", "cached_input", "output", "rounding"


class ChargeGroup(NamedTuple):
    """Charges of a key for a model at one price and one end user; they sort as the columns do."""

    project: uuid.UUID
    key: uuid.UUID
    model: str
    price_version: int
    input_pico: int
    cached_pico: int
    output_pico: int
    requests: int
    uncached: int
    cached: int
    output: int
    nano: int
    end_user: str
    labels: str


class Part(NamedTuple):
    """One kind of token of a group, or its rounding (no tokens, no rate).

    `pico` is the exact cost, `nano` the part of the ledger's amount that the row stands for.
    """

    token_type: str
    tokens: int | None
    rate_pico: int | None
    pico: int
    nano: int
    requests: int


class BucketCharge(NamedTuple):
    """One part of a group that was booked in the hour or day [start, end)."""

    start: datetime
    end: datetime
    group: ChargeGroup
    part: Part


class Window(NamedTuple):
    """What was booked from a moment until `end`, in a fixed order; `nano` is the ledger's sum."""

    charges: list[BucketCharge]
    nano: int
    end: datetime


def window_read(scope: Scope, start: datetime) -> Window:
    """The hours or the day from `start` on, as far as the scope goes."""
    grain = ExportGrain(scope.grain)
    end, step = start + WINDOWS[grain], STEPS[grain]
    wanted = [scope.organization]
    with bounded_read(wanted):
        found = hours(
            organizations=wanted,
            start=start,
            end=min(end, scope.through),
            by=(
                cast(Dimension, grain.value),
                *("project", "key", "model", "price_version", "end_user", "labels"),
            ),
        )
        groups = sorted((one.hour or one.day or start, _group(one)) for one in found)
    charges = [
        BucketCharge(opens, opens + step, group, part)
        for opens, group in groups
        for part in parts_of(group)
    ]
    return Window(charges, sum(group.nano for _, group in groups), end)


def cursor_after(scope: Scope, window: Window) -> str | None:
    """Where the next window begins; None at the end."""
    return str(int(window.end.timestamp())) if window.end < scope.through else None


def start_from(cursor: str, scope: Scope) -> datetime:
    """The beginning that `cursor_after` told; the scope's for the empty one."""
    return datetime.fromtimestamp(int(cursor), UTC) if cursor else scope.start


def parts_of(group: ChargeGroup) -> Iterator[Part]:
    """The rows of a group: uncached input with the number of requests, what else there is, and
    rounding where it is not zero.
    """
    pico_left, nano_left = group.nano * PICO_PER_NANO, group.nano
    for kind, tokens, rate in (
        (UNCACHED, group.uncached, group.input_pico),
        (CACHED, group.cached, group.cached_pico),
        (OUTPUT, group.output, group.output_pico),
    ):
        if tokens == 0 and kind != UNCACHED:
            continue
        pico = tokens * rate
        nano = nano_from_pico(pico)
        pico_left, nano_left = pico_left - pico, nano_left - nano
        yield Part(kind, tokens, rate, pico, nano, group.requests if kind == UNCACHED else 0)
    if pico_left or nano_left:
        yield Part(ROUNDING, None, None, pico_left, nano_left, 0)


def _group(one: HourSum) -> ChargeGroup:
    """The sum as it comes when grouped so; `price_version` brings the rates."""
    return ChargeGroup(*(getattr(one, name) for name in ChargeGroup._fields))
