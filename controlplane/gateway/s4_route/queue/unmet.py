"""Pools that a request asked for while no node of theirs served: what wakes one that has none.

Such a request is refused at once and waits nowhere, so the queue's depth does not tell of it.
"""

# Scaling looks every few seconds, and a client that was refused comes back within a minute.
UNMET_S = 60.0
POOLS_MAX = 1024


class Unmet:
    """Each pool with the last time that it was missed; every time comes in as `now_s`."""

    def __init__(self) -> None:
        self._missed: dict[str, float] = {}

    def note(self, pool: str, now_s: float) -> None:
        """A request found no node there; beyond the bound the one missed longest ago is dropped."""
        self._missed.pop(pool, None)
        self._missed[pool] = now_s
        if len(self._missed) > POOLS_MAX:
            del self._missed[next(iter(self._missed))]

    def pools(self, now_s: float) -> list[str]:
        """Those missed a short time ago, by name."""
        self._missed = {
            pool: at_s for pool, at_s in self._missed.items() if now_s - at_s <= UNMET_S
        }
        return sorted(self._missed)
