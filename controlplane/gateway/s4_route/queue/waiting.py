"""How many requests may wait in one gateway, and which of them make room for another."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from controlplane.gateway.s4_route.queue.request import QueuedRequest, QueueEntry

WAITING_MAX = 1024
# Prompts wait in memory: about 32 MiB of token ids.
WAITING_TOKENS_MAX = 4 * 1024 * 1024


@dataclass(slots=True, eq=False, repr=False)
class Backlog:
    """What one tenant has waiting of one rank."""

    charge: float = 0.0
    tickets: OrderedDict[QueueEntry, None] = field(default_factory=OrderedDict)


@dataclass(slots=True, eq=False, repr=False)
class WaitingRequests:
    """Everyone who waits, by rank and tenant."""

    _ranks: dict[tuple[int, float], dict[str, Backlog]] = field(default_factory=dict)
    count: int = 0
    tokens: int = 0

    def add(self, ticket: QueueEntry, *, first: bool = False) -> None:
        """One more waits, the newest of its tenant or the oldest."""
        claim = ticket.claim
        tenants = self._ranks.setdefault(claim.rank, {})
        backlog = tenants.setdefault(claim.tenant, Backlog())
        backlog.tickets[ticket] = None
        backlog.tickets.move_to_end(ticket, last=not first)
        backlog.charge += claim.charge
        self.count += 1
        self.tokens += claim.work_tokens

    def remove(self, ticket: QueueEntry) -> None:
        claim = ticket.claim
        tenants = self._ranks[claim.rank]
        backlog = tenants[claim.tenant]
        del backlog.tickets[ticket]
        backlog.charge -= claim.charge
        if not backlog.tickets:
            del tenants[claim.tenant]
        if not tenants:
            del self._ranks[claim.rank]
        self.count -= 1
        self.tokens -= claim.work_tokens

    def tickets(self) -> Iterator[QueueEntry]:
        for tenants in self._ranks.values():
            for backlog in tenants.values():
                yield from backlog.tickets

    def displaced(self, claim: QueuedRequest) -> list[QueueEntry] | None:
        """Who must go so that a request may wait; None when it is the one who must."""
        count = self.count + 1 - WAITING_MAX
        # One that alone is too large may wait alone.
        tokens = self.tokens + claim.work_tokens - WAITING_TOKENS_MAX if self.count else 0
        gone: list[QueueEntry] = []
        if count <= 0 and tokens <= 0:
            return gone
        for ticket in self._lesser(claim):
            gone.append(ticket)
            count -= 1
            tokens -= ticket.claim.work_tokens
            if count <= 0 and tokens <= 0:
                return gone
        return None

    def _lesser(self, claim: QueuedRequest) -> Iterator[QueueEntry]:
        """Lowest rank first; in a rank the tenant with most work waiting, of a tenant the newest.

        Of the same rank only those whose tenant has more than this request's has with it: who
        fills the queue does not keep others out.
        """
        for rank in sorted(rank for rank in self._ranks if rank <= claim.rank):
            tenants = self._ranks[rank]
            own = claim.charge
            if (backlog := tenants.get(claim.tenant)) is not None:
                own += backlog.charge
            heaviest = sorted(tenants.values(), key=lambda backlog: backlog.charge, reverse=True)
            for backlog in heaviest:
                charge = backlog.charge
                for ticket in reversed(backlog.tickets):
                    if rank == claim.rank and charge <= own:
                        return
                    yield ticket
                    charge -= ticket.claim.charge
