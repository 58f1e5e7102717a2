"""What every kind of file gives its writer: pages of finished lines, each of a short reading."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from controlplane.billing.cells import Column


class Names(NamedTuple):
    """Present names of an organization, its projects and its keys, by id."""

    organization: str
    projects: Mapping[uuid.UUID, str]
    keys: Mapping[uuid.UUID, str]


@dataclass(frozen=True)
class Scope:
    """What to write: an organization's lines booked in [start, through), up to a sealed hour.

    `grain` is the name of an ExportGrain; `invoices` are numbers of issued ones by month.
    """

    organization: uuid.UUID
    start: datetime
    through: datetime
    grain: str
    raw: bool
    names: Names
    invoices: Mapping[str, str]

    def share(self, moment: datetime) -> float:
        """How much of the way lies before a moment, 0 to 1."""
        whole = self.through - self.start
        return min(1.0, (moment - self.start) / whole) if whole else 1.0


class ExportPage(NamedTuple):
    """Finished lines; `nano` is what they sum to, `cursor` where the next page begins, None at the
    end, and `share` how much of the way is done, 0 to 1.
    """

    lines: list[str]
    nano: int
    cursor: str | None
    share: float


class Pages(Protocol):
    """A kind of file: the same scope and cursor always give the same page."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The head."""

    def page(self, cursor: str) -> ExportPage:
        """The page after a cursor; the empty one stands before all."""
