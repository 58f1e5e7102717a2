"""Start-time fair queueing between tenants (Goyal, Vin and Cheng, SIGCOMM 1996).

A request's start tag is the later of virtual time and its tenant's last finish tag; the lowest
start tag goes next, moves virtual time there and its tenant's finish tag on by its work over its
weight. Whatever two tenants have both waited through, their work differs by at most one request of
each. Tags are given when a request is at its tenant's head, as in Sheng et al.'s Virtual Token
Counter (OSDI 2024), so that requests which leave unserved cost their tenant nothing.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from controlplane.gateway.s4_route.queue.request import QueuedRequest, QueueEntry

TENANTS_MAX = 4096
EMPTY_FLOWS_MAX = 16


@dataclass(slots=True, eq=False, repr=False)
class Shares:
    """The tags of one line's tenants in one priority class."""

    now: float = 0.0
    _finish: dict[str, float] = field(default_factory=dict)

    def start(self, tenant: str, since: float) -> float:
        """The start tag of a tenant's head, which has waited since that virtual time."""
        return max(since, self._finish.get(tenant, 0.0))

    def charge(self, claim: QueuedRequest) -> float:
        """It is served now, with this start tag.

        Who was held up by full nodes does not catch up later at others' cost.
        """
        tenant = claim.tenant
        self.now = self.start(tenant, self.now)
        self._finish[tenant] = self.now + claim.charge
        self._forget()
        return self.now

    def refund(self, claim: QueuedRequest) -> None:
        if claim.tenant in self._finish:
            self._finish[claim.tenant] -= claim.charge

    def _forget(self) -> None:
        if len(self._finish) > TENANTS_MAX:
            self._finish = {name: tag for name, tag in self._finish.items() if tag > self.now}
        if len(self._finish) > TENANTS_MAX:
            # The one who came longest ago owes at most one request.
            del self._finish[next(iter(self._finish))]


@dataclass(slots=True, eq=False, repr=False)
class Flow:
    """One tenant's requests in one lane and class, in order of arrival."""

    tenant: str
    tickets: OrderedDict[QueueEntry, None] = field(default_factory=OrderedDict)
    charge: float = 0.0
    since: float = 0.0
    in_heap: bool = False


class QueueHead(NamedTuple):
    """Who would go next in a lane and class, by the order in which heads are compared."""

    start: float
    number: int
    ticket: QueueEntry


@dataclass(slots=True, eq=False, repr=False)
class Turns:
    """The order in which one lane's requests of one class are served.

    A heap of flows by start tag. Tags only grow, so one that is out of date is found and put right
    when it comes to the top.
    """

    _shares: Shares
    _flows: dict[str, Flow] = field(default_factory=dict)
    _heap: list[tuple[float, int, Flow]] = field(default_factory=list)
    count: int = 0

    def add(self, ticket: QueueEntry, *, first: bool = False) -> None:
        """At the end of its tenant's requests, or before them all."""
        flow = self._flows.setdefault(ticket.claim.tenant, Flow(ticket.claim.tenant))
        if not flow.tickets:
            flow.since, flow.charge = ticket.start if first else self._shares.now, 0.0
        flow.tickets[ticket] = None
        if first:
            flow.tickets.move_to_end(ticket, last=False)
            flow.since = min(flow.since, ticket.start)
            # Its tag is lower than the one under which the heap has its tenant.
            self._rebuild()
        flow.charge += ticket.claim.charge
        self.count += 1
        if not flow.in_heap:
            start = self._shares.start(flow.tenant, flow.since)
            heappush(self._heap, (start, next(iter(flow.tickets)).number, flow))
            flow.in_heap = True

    def remove(self, ticket: QueueEntry) -> None:
        flow = self._flows[ticket.claim.tenant]
        del flow.tickets[ticket]
        flow.charge -= ticket.claim.charge
        self.count -= 1
        if len(self._heap) > EMPTY_FLOWS_MAX + 2 * self.count:
            self._rebuild()

    def head(self) -> QueueHead | None:
        """The request with the lowest start tag; of equals the one that came first."""
        while self._heap:
            tag, number, flow = self._heap[0]
            if not flow.tickets:
                heappop(self._heap)
                flow.in_heap = False
                del self._flows[flow.tenant]
                continue
            ticket = next(iter(flow.tickets))
            start = self._shares.start(flow.tenant, flow.since)
            if (start, ticket.number) == (tag, number):
                return QueueHead(start, number, ticket)
            heapreplace(self._heap, (start, ticket.number, flow))
        return None

    def charge(self, tenant: str) -> float:
        flow = self._flows.get(tenant)
        return flow.charge if flow is not None and flow.tickets else 0.0

    def before(self, tenant: str, start: float) -> int:
        """How many go before a tenant's next request with this start tag.

        Its own all do; of others as many as start no later, as if theirs were all of one size.
        """
        found = 0
        for flow in self._flows.values():
            size = len(flow.tickets)
            if flow.tenant == tenant:
                found += size
            elif size and (lead := start - self._shares.start(flow.tenant, flow.since)) >= 0.0:
                found += min(size, 1 + int(lead * size / flow.charge))
        return found

    def tagged(self) -> Iterator[tuple[QueueEntry, float]]:
        """Everyone with the start tag that each would have now."""
        for start, flow in self._waiting():
            for ticket in flow.tickets:
                yield ticket, start
                start += ticket.claim.charge

    def _waiting(self) -> Iterator[tuple[float, Flow]]:
        for flow in self._flows.values():
            if flow.tickets:
                yield self._shares.start(flow.tenant, flow.since), flow

    def _rebuild(self) -> None:
        self._flows = {name: flow for name, flow in self._flows.items() if flow.tickets}
        self._heap = [
            (start, next(iter(flow.tickets)).number, flow) for start, flow in self._waiting()
        ]
        heapify(self._heap)
        for flow in self._flows.values():
            flow.in_heap = True
