"""A ledger in memory: what the contract of the port asks for, held to it by `tests/contracts`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from controlplane.bridge.money.ledger import reported_counts
from controlplane.gateway.ports import BudgetExceeded, Hold, LedgerAway, Settlement
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.price import charge_nano, counts_within
from inference.contract.frames import Report

Line = tuple[int, str, int]


@dataclass
class MemoryBudget:
    """A limit with its counters; one without a limit has the ledger's `room_nano` for each hold."""

    lim: int | None
    scope: str = "organization"
    posted: int = 0
    held: int = 0
    model: str = ""


@dataclass
class MemoryLedger:
    """Holds and settlements by request; `lines` are (slot, kind, amount) as on the real ledger.

    A budget that nobody has made has room for `room_nano` unless `known_only`. What the port allows
    and no gateway should do, to hold or to settle a request twice, fails the test unless `lenient`.
    """

    room_nano: int = 10**12
    away: bool = False
    away_at_settle: bool = False
    lenient: bool = False
    known_only: bool = False
    budgets: dict[str, MemoryBudget] = field(default_factory=dict)
    held: dict[bytes, Hold] = field(default_factory=dict)
    open: dict[bytes, Hold] = field(default_factory=dict)
    settled: dict[bytes, Settlement] = field(default_factory=dict)
    lines: dict[bytes, list[Line]] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    _due_s: dict[bytes, float] = field(default_factory=dict)

    def hold(self, hold: Hold) -> asyncio.Future[None]:
        """Reserve on all budgets or none."""
        return asyncio.ensure_future(self.reserve(hold))

    async def reserve(self, hold: Hold) -> None:
        """Reserve now."""
        if self.away:
            raise LedgerAway
        if hold.request in self.lines:
            assert self.lenient, "held twice"
            return
        if hold.amount_nano == 0:
            return
        if hold.users is not None:
            own, template = hold.users
            self.budgets.setdefault(own, MemoryBudget(self._budget(template).lim, "user"))
        for name in hold.budgets:
            budget = self._budget(name)
            if self._room(budget) < hold.amount_nano:
                raise BudgetExceeded(budget.scope, name)
        self._book_hold(hold.request, hold.budgets, hold.amount_nano)
        self.held[hold.request] = self.open[hold.request] = hold
        self._due_s[hold.request] = monotonic_s() + hold.expires_s

    def release(self, hold: Hold) -> None:
        """Resolve at no charge."""
        if hold.amount_nano == 0:
            return
        assert self.lenient or hold.request in self.open, "released without a hold"
        if hold.request in self.open:
            del self.open[hold.request]
            self._give_back(hold.budgets, hold.amount_nano)
            self.lines[hold.request].append((1, "release", hold.amount_nano))

    async def settle(self, settlement: Settlement) -> None:
        """Resolve once, late where the hold has expired, and anew where nobody knows of it."""
        if self.away or self.away_at_settle:
            raise LedgerAway
        if settlement.held_nano == 0 and settlement.amount_nano == 0:
            return
        request, hold = settlement.request, self.open.pop(settlement.request, None)
        if hold is not None:
            assert self.lenient or hold.amount_nano == settlement.held_nano
            self._book(settlement, hold.amount_nano)
        elif self._resolution(request) == "expire" and settlement.amount_nano > 0:
            self._post(settlement, settlement.amount_nano)
            self.lines[request].append((2, "late", settlement.amount_nano))
        elif request in self.lines:
            assert self.lenient, "settled twice"
            return
        else:
            assert self.lenient, "settled without a hold"
            if settlement.held_nano:
                self._book_hold(request, settlement.budgets, settlement.held_nano)
            self._book(settlement, settlement.held_nano)
        self.settled[request] = settlement

    async def settle_report(self, report: Report, *, served: bool = False) -> bool:
        """By the hold's own terms, and never beyond it."""
        self.reports.append(report)
        if self.away:
            return False
        hold, resolution = self.held.get(report.request), self._resolution(report.request)
        if resolution not in ("", "expire"):
            return True
        if served:
            return False
        price = None
        if hold is not None:
            price = hold.price if report.model == hold.model else hold.others.get(report.model)
        if hold is None or price is None:
            return True
        counts = reported_counts(report)
        if charge_nano(price, counts) > hold.amount_nano:
            counts = counts_within(price, counts, hold.amount_nano)
        await self.settle(
            Settlement(
                request=hold.request, organization=hold.organization, project=hold.project,
                key=hold.key, budgets=hold.budgets, held_nano=hold.amount_nano,
                amount_nano=charge_nano(price, counts), counts=counts, model=report.model,
                price=price, source="estimate" if report.usage.source == "estimate" else "node",
            )
        )  # fmt: skip
        return True

    def expire(self) -> None:
        """What the sweeper does: void the holds whose time is over."""
        now_s = monotonic_s()
        for hold in [each for each in self.open.values() if self._due_s[each.request] <= now_s]:
            del self.open[hold.request]
            self._give_back(hold.budgets, hold.amount_nano)
            self.lines[hold.request].append((1, "expire", hold.amount_nano))

    def _resolution(self, request: bytes) -> str:
        """The kind of the line that resolved a request; empty where none did."""
        kinds = [
            kind for slot, kind, _ in self.lines.get(request, ()) if slot and kind != "overage"
        ]
        return kinds[-1] if kinds else ""

    def _budget(self, name: str) -> MemoryBudget:
        if self.known_only and name not in self.budgets:
            raise LedgerAway(f"budget {name} is not on the ledger")
        return self.budgets.setdefault(name, MemoryBudget(None))

    def _room(self, budget: MemoryBudget) -> int:
        return self.room_nano if budget.lim is None else budget.lim - budget.posted - budget.held

    def _book_hold(self, request: bytes, budgets: tuple[str, ...], nano: int) -> None:
        for name in budgets:
            self._budget(name).held += nano
        self.lines[request] = [(0, "hold", nano)]

    def _book(self, settlement: Settlement, held_nano: int) -> None:
        """Give the hold back and post the charge, beyond the hold as overage."""
        amount, lines = settlement.amount_nano, self.lines.setdefault(settlement.request, [])
        if held_nano:
            self._give_back(settlement.budgets, held_nano)
            self._post(settlement, amount)
        if amount == 0:
            lines.append((1, "release", held_nano))
            return
        lines.append((1, "settle", min(amount, held_nano or amount)))
        if held_nano and amount > held_nano:
            lines.append((2, "overage", amount - held_nano))

    def _give_back(self, budgets: tuple[str, ...], nano: int) -> None:
        for name in budgets:
            self._budget(name).held -= nano

    def _post(self, settlement: Settlement, nano: int) -> None:
        """A model's budget is charged for that model alone."""
        for name in settlement.budgets:
            if self._budget(name).model in ("", settlement.model):
                self._budget(name).posted += nano
