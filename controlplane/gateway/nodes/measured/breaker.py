"""Which nodes get no new work for a while, because of what became of the work they had.

A breaker is closed until its node fails too often, is much slower than its like or stops moving;
then it is open for a time that grows with every ejection, and half open until a few jobs have shown
that the node works again. What it cannot do is to leave a model without a node.

What is known of each node by its name outlasts its links.
"""

import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from math import inf
from typing import Protocol, TypeVar

import msgspec

from controlplane.gateway.nodes.limits import NODES_MAX
from controlplane.gateway.nodes.measured.times import Spread, Times
from controlplane.kernel.clock import monotonic_s

log = logging.getLogger(__name__)

FAILURES_IN_A_ROW_MAX = 5
OUTCOMES_KEPT = 40
OUTCOMES_MIN = 20
FAILED_SHARE_MAX = 0.5
EJECT_S_MAX = 300.0
EJECT_JITTER = 0.2
PROBES_MAX = 3
# Of the nodes of a model in one pool; those that stand still do not count among them.
EJECTED_SHARE_MAX = 0.5
SLOWER_MAX = 3.0


class BreakerState(Enum):
    """Whether a node gets work: all, none, or a few jobs to prove itself."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Cause(Enum):
    """Why a breaker opened last."""

    NONE = ""
    FAILURES = "failures"
    SLOW = "slow"
    STALLED = "stalled"


class BreakerFacts(msgspec.Struct, frozen=True):
    """A breaker for people: `left_s` is the time until jobs probe the node again."""

    state: str
    cause: str
    ejections: int
    left_s: float


class Breaker:
    """One node's, kept over its links; `changed` is called after every change of state."""

    __slots__ = (
        "_answers", "_eject_s", "_failures_in_a_row", "_outcomes", "_until_s",
        "cause", "changed", "ejections", "node", "opened_s", "state",
    )  # fmt: skip

    def __init__(self, node: str, *, eject_s: float, changed: Callable[[], None]) -> None:
        self.node = node
        self.state = BreakerState.CLOSED
        self.cause = Cause.NONE
        self.ejections = 0
        self.opened_s = -inf
        self.changed = changed
        self._eject_s = eject_s
        self._until_s = 0.0
        self._answers = 0
        self._failures_in_a_row = 0
        self._outcomes: deque[bool] = deque(maxlen=OUTCOMES_KEPT)

    @property
    def facts(self) -> BreakerFacts:
        opened = self.state is BreakerState.OPEN
        left_s = max(0.0, self._until_s - monotonic_s()) if opened else 0.0
        return BreakerFacts(self.state.value, self.cause.value, self.ejections, round(left_s, 1))

    def answered(self) -> None:
        """A job of the node has brought something; enough of them close a half-open breaker."""
        if self.state is not BreakerState.HALF_OPEN:
            return
        self._answers += 1
        if self._answers >= PROBES_MAX:
            self._move(BreakerState.CLOSED)

    def succeeded(self) -> None:
        self._failures_in_a_row = 0
        self._outcomes.append(True)

    def failed(self) -> None:
        """A job has ended by a fault of the node."""
        self._failures_in_a_row += 1
        self._outcomes.append(False)
        half_open = self.state is BreakerState.HALF_OPEN
        if half_open or self.state is BreakerState.CLOSED and self._fails_often:
            self.eject(Cause.FAILURES)

    def eject(self, cause: Cause) -> None:
        """Open, for longer than the last time unless that was long ago; no effect when open.

        Standing still counts for nothing here: whoever moves again is probed at once.
        """
        if self.state is BreakerState.OPEN:
            return
        now = monotonic_s()
        if now - self.opened_s > EJECT_S_MAX:
            self.ejections = 0
        self.ejections += cause is not Cause.STALLED
        jitter = random.uniform(1.0 - EJECT_JITTER, 1.0 + EJECT_JITTER)
        self._until_s = now + min(self._eject_s * self.ejections, EJECT_S_MAX) * jitter
        self.opened_s, self.cause = now, cause
        self._move(BreakerState.OPEN)

    def probe(self) -> None:
        """What opened it may be over, since the node moves again or has come back: half open."""
        if self.state is BreakerState.OPEN:
            self._move(BreakerState.HALF_OPEN)

    def tick(self) -> None:
        """Half open once the time is over; a node that stands still is waited for."""
        if self.cause is not Cause.STALLED and monotonic_s() >= self._until_s:
            self.probe()

    @property
    def _fails_often(self) -> bool:
        if self._failures_in_a_row >= FAILURES_IN_A_ROW_MAX:
            return True
        failed = self._outcomes.count(False)
        enough = len(self._outcomes) >= OUTCOMES_MIN
        return enough and failed >= FAILED_SHARE_MAX * len(self._outcomes)

    def _move(self, state: BreakerState) -> None:
        self.state = state
        self._answers = 0
        self._failures_in_a_row = 0
        self._outcomes.clear()
        level = logging.WARNING if state is BreakerState.OPEN else logging.INFO
        log.log(level, "breaker %s name=%s cause=%s ejections=%d",
                state.value, self.node, self.cause.value, self.ejections)  # fmt: skip
        self.changed()


class Guarded(Protocol):
    @property
    def breaker(self) -> Breaker:
        """Its own."""


AnyGuarded = TypeVar("AnyGuarded", bound=Guarded)


def admitted(nodes: Sequence[AnyGuarded]) -> list[AnyGuarded]:
    """Those of one model in one pool that get work, in their order; never none of them.

    Beyond the share that may be ejected, those that were ejected last stay.
    """
    opened = [each for each in nodes if each.breaker.state is BreakerState.OPEN]
    if not opened:
        return list(nodes)
    still = [each for each in opened if each.breaker.cause is Cause.STALLED]
    others = sorted(
        (each for each in opened if each.breaker.cause is not Cause.STALLED),
        key=lambda each: each.breaker.opened_s,
    )
    moving = len(nodes) - len(still)
    ejected_max = min(max(1, int(moving * EJECTED_SHARE_MAX)), moving - 1) if moving else 0
    out = [*still, *others[:ejected_max]]
    return [each for each in nodes if each not in out] or list(nodes)


class KnownNode(msgspec.Struct, eq=False):
    """One node: whether it gets work, how long it takes, and how long it is silent with work."""

    breaker: Breaker
    quiet: Spread = msgspec.field(default_factory=Spread)
    left_s: float | None = None
    _times: dict[str, Times] = {}

    def times(self, model: str) -> Times:
        times = self._times.get(model)
        if times is None:
            times = self._times[model] = Times()
        return times


class KnownNodes:
    """All of them; one that has left is forgotten as late as its breaker would forget."""

    def __init__(self, *, eject_s: float, changed: Callable[[], None]) -> None:
        self._eject_s = eject_s
        self._changed = changed
        self._nodes: dict[str, KnownNode] = {}

    def find(self, name: str) -> KnownNode:
        """What is known of a node, or a sheet to write it on."""
        known = self._nodes.get(name)
        return known or KnownNode(Breaker(name, eject_s=self._eject_s, changed=self._changed))

    def join(self, name: str, known: KnownNode) -> None:
        """It is here: a new link is a new chance."""
        self._nodes[name] = known
        known.left_s = None
        known.breaker.probe()
        if len(self._nodes) > 2 * NODES_MAX:
            gone = (each for each, its in self._nodes.items() if its.left_s is not None)
            del self._nodes[next(gone)]

    def leave(self, name: str) -> None:
        self._nodes[name].left_s = monotonic_s()

    def tick(self) -> None:
        """Let breakers see the time, and forget."""
        now = monotonic_s()
        for name, known in list(self._nodes.items()):
            known.breaker.tick()
            if known.left_s is not None and now - known.left_s > EJECT_S_MAX:
                del self._nodes[name]
