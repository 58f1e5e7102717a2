"""Child processes that are kept running: when they start again, what they inherit, their end."""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

BACKOFF_S_MIN, BACKOFF_S_MAX = 0.5, 30.0
# A child that lived this long has recovered, and its next death counts as the first.
HEALTHY_S = 60.0
PR_SET_PDEATHSIG = 1


@dataclass
class Restarts:
    """When a child may be started again: the pause doubles from one death to the next.

    Times are those of `time.monotonic`.
    """

    pause_s: float = field(default_factory=lambda: BACKOFF_S_MIN)
    started: float = 0.0
    retry_at: float = 0.0

    def recovered(self, now: float) -> bool:
        """Whether it has lived long enough; its next pause is the shortest then."""
        if now - self.started <= HEALTHY_S:
            return False
        self.reset()
        return True

    def reset(self) -> None:
        self.pause_s = BACKOFF_S_MIN

    def put_off(self, now: float) -> None:
        """Wait for the pause, and longer the next time."""
        self.retry_at = now + self.pause_s
        self.pause_s = min(2 * self.pause_s, BACKOFF_S_MAX)


def environment_without(*prefixes: str) -> dict[str, str]:
    """Our environment without the variables that begin so."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def end_family(session: int) -> None:
    """Kill what a child left behind, which shares its session's process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)


def end_with_parent() -> Callable[[], None] | None:
    """What makes a child get SIGTERM when this process is killed, for `preexec_fn`; on Linux."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
