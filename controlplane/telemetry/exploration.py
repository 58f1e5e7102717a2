"""What Explore is asked, and what it answers."""

from dataclasses import MISSING, dataclass, field, fields
from typing import Any
from uuid import UUID

from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import GATEWAY_WAIT, PHASES, STAGE_NAMES
from controlplane.telemetry.selectors import TIME, UsageSum
from controlplane.telemetry.selectors_requests import RequestFilter
from controlplane.telemetry.tiers import TierRange

# Groups that are told apart.
GROUPS_MAX = 5_000
# Of requests as they are stored.
COLUMNS = (
    *("organization", "project", "key", "model", "route", "pool", "region", "status"),
    *("error_code", "end_user", "finish", "rating"),
)
DIMENSIONS = (*COLUMNS, "prompt_bucket", "template", "label", "hour", TIME)
SPAN_OF = {
    **{name: name for name in STAGE_NAMES},
    **{short: name for name, short in PHASES.items()},
    GATEWAY_WAIT: GATEWAY_WAIT,
}
MEASURES = ("total", "ttft", "inter_token", "overhead", "unattributed", *SPAN_OF)


@dataclass(frozen=True)
class Exploration:
    """The question: which requests, of which organizations, by which one or two of `DIMENSIONS`.

    `measure` is one of `MEASURES`; blank for counts alone. `installation` says that the
    organizations are all there are. `label` is the name of one: by it and its `label_value`
    requests are chosen, and by its values they are grouped; without it, by all that they have.
    `hours` are two of the day in UTC, [from, to), over midnight too.
    """

    wanted: RequestFilter
    organizations: tuple[UUID, ...]
    by: tuple[str, ...]
    step_s: int
    measure: str = "total"
    installation: bool = False
    prompt_bucket: int | None = None
    template: str = ""
    label: str = ""
    label_value: str | None = None
    hours: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            *(("by", one, DIMENSIONS) for one in self.by),
            ("measure", self.measure, ("", *MEASURES)),
        ):
            if value not in known:
                raise ValueError(f"{name}: {value} is not one of {', '.join(known)}")

    @property
    def span(self) -> TierRange:
        return TierRange(self.step_s, self.wanted.start, self.wanted.end)

    @property
    def narrowed(self) -> dict[str, Any]:
        """Filters by column, without organization and time."""
        optional = {
            one.name: one.default for one in fields(self.wanted) if one.default is not MISSING
        }
        given = {name: getattr(self.wanted, name) for name in optional}
        return {name: value for name, value in given.items() if value != optional[name]}

    @property
    def needs(self) -> frozenset[str]:
        """All that must be known of a request together to answer."""
        own = (self.prompt_bucket, self.template or None, self.label or None, self.hours)
        more = {"more"} if any(one is not None for one in own) else set()
        return frozenset((*self.narrowed, *self.by, *more))


@dataclass
class ExploredGroup:
    """What requests with the same values have together; `times` are of the measure."""

    usage: UsageSum = field(default_factory=UsageSum)
    times: Histogram = field(default_factory=Histogram)

    def add(self, other: "ExploredGroup") -> None:
        self.usage.add(other.usage)
        self.times.merge(other.times)


@dataclass(frozen=True)
class Explored:
    """Groups by their values, the most requests first, and what lies beyond `GROUPS_MAX`.

    `rows` were read for percentiles, of as many as there are requests; None for roll-ups.
    """

    groups: dict[tuple[Any, ...], ExploredGroup]
    beyond: ExploredGroup
    rows: int | None

    @property
    def whole(self) -> ExploredGroup:
        made = ExploredGroup()
        for group in (*self.groups.values(), self.beyond):
            made.add(group)
        return made
