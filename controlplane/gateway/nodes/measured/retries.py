"""How many requests may be tried again: a share of all, so that retries cannot become the load."""

import random

from controlplane.kernel.clock import monotonic_s

RETRY_SHARE = 0.1
RETRIES_PER_S = 10.0
# What may be saved up: enough for all the jobs of a node that is lost with a full batch.
RETRIES_SAVED_MAX = 500.0
# Long enough on average to hear of other nodes that were lost at the same moment.
PAUSE_S_BASE = 0.05
PAUSE_S_MAX = 0.25


class RetryBudget:
    """Earns a tenth of a retry with every request and ten each second, up to a bound."""

    __slots__ = ("_at_s", "_saved")

    def __init__(self) -> None:
        self._saved = RETRIES_SAVED_MAX
        self._at_s = monotonic_s()

    def deposit(self) -> None:
        self._saved = min(self._saved + RETRY_SHARE, RETRIES_SAVED_MAX)

    def withdraw(self) -> bool:
        """Take one retry; False when there is none left."""
        now = monotonic_s()
        earned = (now - self._at_s) * RETRIES_PER_S
        self._saved = min(self._saved + earned, RETRIES_SAVED_MAX)
        self._at_s = now
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True


def pause_s(failures: int) -> float:
    """Seconds before the next attempt: anywhere up to a bound that doubles (full jitter)."""
    return random.uniform(0.0, min(PAUSE_S_BASE * 2.0 ** (failures - 1), PAUSE_S_MAX))
