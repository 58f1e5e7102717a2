"""Memory that the bodies of requests may take together while they are read."""

from __future__ import annotations

from collections import Counter

import msgspec

from controlplane.kernel.shares import is_over_share


class BytesBudget:
    """Counts bodies beyond their first `small_bytes`, so that small ones always fit.

    One owner, such as an organization or an address, gets its share of it, and up to half
    while the rest is free; once others want that, what is over the share grows no more.
    """

    def __init__(self, *, bytes_max: int, small_bytes: int) -> None:
        self.bytes_max = bytes_max
        self.small_bytes = small_bytes
        self.used = 0
        self.used_of: Counter[str] = Counter()

    def portion(self, owner: str) -> Portion:
        return Portion(self, owner)


class Portion(msgspec.Struct, eq=False):
    """What one body takes, until it is freed."""

    _budget: BytesBudget
    _owner: str
    size: int = 0

    def grow(self, more: int) -> bool:
        """The body has grown; False where there is no room for it, though it is counted."""
        before = self._counted
        self.size += more
        if self._counted == before:
            return True
        self._add(self._counted - before)
        return self._budget.used <= self._budget.bytes_max and not self.is_over_share

    @property
    def is_over_share(self) -> bool:
        """Whether all that its owner has takes more than one owner may have now."""
        budget = self._budget
        return is_over_share(budget.used_of[self._owner], budget.used, budget.bytes_max)

    def free(self) -> None:
        self._add(-self._counted)
        self.size = 0

    @property
    def _counted(self) -> int:
        return max(0, self.size - self._budget.small_bytes)

    def _add(self, more: int) -> None:
        if not more:
            return
        budget = self._budget
        budget.used += more
        budget.used_of[self._owner] += more
        if not budget.used_of[self._owner]:
            del budget.used_of[self._owner]
