"""The live map under /api/fleet/map, for staff."""

from typing import TypedDict

from controlplane.composed.livemap.gather import live_map
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import operation
from controlplane.core.api.views import ApiView


class LevelJson(TypedDict):
    """How much of something is used; `bound` is 0 where there is none."""

    name: str
    used: float
    bound: float


class PartJson(TypedDict):
    """A part. `health` is ok, warn, bad or off, and `state` says it in a word. `age_s` is the age
    of what is known, null where it was asked just now; `rates` are per second.
    """

    id: str
    layer: str
    kind: str
    name: str
    health: str
    state: str
    version: str
    up_s: float | None
    age_s: float | None
    levels: list[LevelJson]
    rates: dict[str, float]
    connect_ms: float | None
    tls_ms: float | None
    problem: str


class EdgeJson(TypedDict):
    """Who calls whom, and how much goes there; `amount` is null where that is not known."""

    source: str
    target: str
    amount: float | None
    unit: str


class LiveMapJson(TypedDict):
    """What runs now."""

    parts: list[PartJson]
    edges: list[EdgeJson]


class LiveMapApi(ApiView, at="api/fleet/map"):
    @operation(answer=LiveMapJson)
    def get(self) -> LiveMapJson:
        """Get what runs now, as heartbeats tell it. Staff only."""
        found = live_map(actor=self.actor())
        return {
            "parts": [
                answer_of(
                    PartJson,
                    part,
                    health=part.standing.health,
                    state=part.standing.state,
                    levels=[level._asdict() for level in part.levels],
                )
                for part in found.parts
            ],
            "edges": [answer_of(EdgeJson, edge) for edge in found.edges],
        }
