"""When one node was last heard and last moved its jobs, and what follows from its silence."""

from enum import Enum

from controlplane.gateway.nodes.limits import LinkLimits
from controlplane.gateway.nodes.measured.times import Spread
from controlplane.kernel.clock import monotonic_s


class LinkVerdict(Enum):
    """What a look at the clock says; the value is the reason to give for closing."""

    FINE = ""
    STANDS_STILL = "jobs in flight but no step for longer than usual"
    STALLED = "jobs in flight but no step"
    FROZEN = "jobs in flight, no step and no answer to pings"
    SILENT = "no answer to pings"
    MUTE = "no hello in time"


LOST = frozenset({LinkVerdict.STALLED, LinkVerdict.FROZEN, LinkVerdict.SILENT})


class Liveness:
    """Four clocks of one link, and how long its node is usually silent while it has work."""

    __slots__ = (
        "_born_s", "_pong_s", "_quiet", "_step_s", "_suspect_s", "_ticked_s", "ping_number",
        "ping_sent_s",
    )  # fmt: skip

    def __init__(self, quiet: Spread) -> None:
        now = monotonic_s()
        self._born_s = self._pong_s = self._step_s = self._ticked_s = self.ping_sent_s = now
        self._suspect_s: float | None = None
        self._quiet = quiet
        self.ping_number = 0

    @property
    def seen_s(self) -> float:
        """When it last did anything, on the monotonic clock."""
        return max(self._pong_s, self._step_s)

    @property
    def suspect(self) -> bool:
        """It stands still just now, as far as is known."""
        return self._suspect_s is not None

    def stepped(self, busy_since_s: float | None) -> bool:
        """A step came, with work in flight since then or without; True if the node stood still."""
        now = monotonic_s()
        if busy_since_s is not None:
            self._quiet.record(now - max(self._step_s, busy_since_s))
        self._step_s = now
        stood_still, self._suspect_s = self.suspect, None
        return stood_still

    def ponged(self, *, idle: bool) -> bool:
        """A ping was answered; True if the node stood still and has nothing left to move."""
        self._pong_s = monotonic_s()
        if not (idle and self.suspect):
            return False
        self._suspect_s = None
        return True

    def overslept(self, tick_s: float) -> bool:
        """Our own loop stood still, so the node's frames may lie unread: no verdict now."""
        now = monotonic_s()
        late_s = now - self._ticked_s - tick_s
        self._ticked_s = now
        if late_s <= tick_s:
            return False
        self.paused(late_s)
        return True

    def paused(self, seconds: float) -> None:
        """Nothing could be heard for so long, which is no silence of the node."""
        self._pong_s += seconds
        self._step_s += seconds

    def before_hello(self, limits: LinkLimits) -> LinkVerdict:
        """For a link whose node has not said who it is."""
        late = monotonic_s() - self._born_s > limits.hello_timeout_s
        return LinkVerdict.MUTE if late else LinkVerdict.FINE

    def look(self, limits: LinkLimits, *, oldest_s: float | None, ahead_s: float) -> LinkVerdict:
        """For one that serves: `oldest_s` is when its longest waiting job was sent, `ahead_s` the
        seconds that the prompts on it take at its learned rate.
        """
        now = monotonic_s()
        if now - self._pong_s > limits.pong_timeout_s:
            return LinkVerdict.SILENT
        still_s = 0.0 if oldest_s is None else now - max(oldest_s, self._step_s)
        if still_s > limits.progress_timeout_s:
            return LinkVerdict.STALLED
        if self._suspect_s is None:
            if still_s <= limits.quiet.of(self._quiet, ahead_s=ahead_s):
                return LinkVerdict.FINE
            self._suspect_s = now
        frozen_s = now - max(self._pong_s, self._suspect_s)
        return LinkVerdict.FROZEN if frozen_s > limits.frozen_s else LinkVerdict.STANDS_STILL

    def ping_due(self, interval_s: float) -> bool:
        """Whether to ping now: at intervals, and at every look at a node that stands still."""
        return self.suspect or monotonic_s() - self.ping_sent_s >= interval_s

    def pinged(self) -> int:
        self.ping_sent_s = monotonic_s()
        self.ping_number += 1
        return self.ping_number
