"""What others read of one connected node, whatever became of its socket."""

from enum import Enum
from functools import cached_property

from controlplane.gateway.nodes.measured.account import NodeAccount
from controlplane.gateway.nodes.measured.breaker import Breaker, KnownNode
from controlplane.gateway.nodes.resume import Session
from controlplane.gateway.ports import NodeIdentity
from inference.contract.capabilities import Capability
from inference.contract.frames import Hello


class LinkState(Enum):
    """Where a link is in its life; it only moves down this list."""

    CONNECTED = "connected"
    READY = "ready"
    DRAINING = "draining"
    CLOSED = "closed"


class LinkFacts:
    """Who the node is, what it said of itself, and whether it takes jobs."""

    def __init__(self, identity: NodeIdentity, known: KnownNode, session: Session) -> None:
        self.identity = identity
        self.known = known
        self.session = session
        self.state = LinkState.CONNECTED
        self.orders = identity.orders
        self.account = NodeAccount(0)
        self._hello: Hello | None = None

    @property
    def breaker(self) -> Breaker:
        return self.known.breaker

    @cached_property
    def hello(self) -> Hello:
        """What the node said of itself; only after it was admitted."""
        if self._hello is None:
            raise LookupError("the node has not said hello")
        return self._hello

    def forget(self) -> None:
        """What was worked out of a hello that no longer stands."""
        for name in ("hello", "abilities", "caches_prefixes", "separates_tenants"):
            self.__dict__.pop(name, None)

    @property
    def takes_jobs(self) -> bool:
        """New jobs may be dispatched here, credits permitting."""
        ready = self.state is LinkState.READY and self.reachable
        fit = self.separates_tenants or not self.orders.separate_caches
        return ready and fit and self.orders.standing == "active"

    @property
    def reachable(self) -> bool:
        """It has a socket; else it waits for its node to resume."""
        return self.session.broken_s is None

    @property
    def drains(self) -> bool:
        """It finishes what it has, by its own will or by staff's."""
        return self.state is LinkState.DRAINING or self.orders.standing == "draining"

    @cached_property
    def abilities(self) -> frozenset[str]:
        return frozenset(self.hello.capabilities)

    @cached_property
    def caches_prefixes(self) -> bool:
        """It keeps prefixes and reports hits; without it nothing can be cached."""
        return Capability.PREFIX_CACHE in self.hello.capabilities

    @cached_property
    def separates_tenants(self) -> bool:
        """No tenant finds another's prefixes in its cache, nor by timing that they are there."""
        return Capability.SALT in self.hello.capabilities or not self.caches_prefixes
