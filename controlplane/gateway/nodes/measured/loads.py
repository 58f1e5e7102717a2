"""What decisions read of many nodes, side by side in memory: accounts write it as they change.

Beyond a few nodes, to visit each one's objects takes longer than all that is worked out of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from controlplane.gateway.nodes.measured.account import NodeAccount, Ready

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

# Of fewer nodes each is visited: numpy takes as long for 4 as for 100.
MANY_NODES = 32


class ReadyColumns(NamedTuple):
    """The figures of `Ready`, by place."""

    wait_s: Floats
    token_s: Floats
    empty_tokens: Floats
    room_tokens: Floats
    oldest_at_s: Floats


class FactColumns(NamedTuple):
    """What means are made of, by place: of accounts, of what nodes told, and of their speeds.

    `caches` and `learned_*` are 0 or 1. `idle_s` is written by `FleetMeans`, all else by accounts.
    """

    active: Floats
    queued_tokens: Floats
    heard_s: Floats
    oldest_at_s: Floats
    caches: Floats
    prefill_tokens_per_s: Floats
    learned_prefill: Floats
    step_s: Floats
    learned_step: Floats
    idle_s: Floats


IDLE = len(FactColumns._fields) - 1
_READY = Struct(f"{len(ReadyColumns._fields)}d")
_FACTS = Struct(f"{IDLE}d")
_FACTS_BYTES = Struct(f"{IDLE + 1}d").size


class LoadTable:
    """A row of figures for each account of an admitted node; those of the others are free."""

    def __init__(self, rows: int) -> None:
        self.ready: Floats = np.zeros((rows, len(ReadyColumns._fields)))
        self.facts: Floats = np.zeros((rows, len(FactColumns._fields)))
        self._free = list(reversed(range(rows)))

    def join(self, account: NodeAccount) -> None:
        """Follow an account from now on; raises IndexError where the table is full."""
        row = self._free.pop()
        self.facts[row, IDLE] = account.idle_s
        account.follow(self, row)

    def drop(self, account: NodeAccount) -> None:
        """Its row may become another's."""
        if account.row is not None:
            self._free.append(account.row)
            account.follow(None, None)

    def write(self, row: int, ready: Ready, *facts: float) -> None:
        """All columns but the last, in their order."""
        _READY.pack_into(self.ready.data, row * _READY.size, *ready)
        _FACTS.pack_into(self.facts.data, row * _FACTS_BYTES, *facts)


class ManyLoads:
    """The loads of many accounts, in their order."""

    __slots__ = ("_places", "_table", "accounts")

    def __init__(self, table: LoadTable, accounts: Sequence[NodeAccount], rows: list[int]) -> None:
        self.accounts = accounts
        self._table = table
        self._places: Places = np.array(rows)

    def __len__(self) -> int:
        return len(self.accounts)

    @classmethod
    def of(cls, accounts: Sequence[NodeAccount]) -> Self | None:
        """None of few, and where one is in no table: then each has to be visited."""
        rows = [account.row for account in accounts if account.row is not None]
        table = accounts[0].table if accounts else None
        if table is None or len(rows) < max(MANY_NODES, len(accounts)):
            return None
        return cls(table, accounts, rows)

    def ready(self) -> ReadyColumns:
        """As they are now."""
        return ReadyColumns(*self._table.ready.take(self._places, axis=0).T)

    def facts(self) -> FactColumns:
        """As they are now."""
        return FactColumns(*self._table.facts.take(self._places, axis=0).T)

    def idle(self, which: NDArray[np.bool_], now_s: float) -> None:
        """These have no work of ours."""
        self._table.facts[self._places[which], IDLE] = now_s
