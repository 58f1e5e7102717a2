"""All nodes on this gateway, by name and by model: admission, fencing, candidates, dispatch.

Health in the database, routing costs and retries are others' business.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from controlplane.gateway.nodes.assets import AssetStore
from controlplane.gateway.nodes.drafts import DraftCounts, DraftedTokens
from controlplane.gateway.nodes.epochs import Epochs
from controlplane.gateway.nodes.facts import LinkState
from controlplane.gateway.nodes.host import BadClaim, LinkRefused
from controlplane.gateway.nodes.index import PrefixIndex
from controlplane.gateway.nodes.limits import (
    CLOSE_FENCED,
    CLOSE_FORBIDDEN,
    CLOSE_GOING_AWAY,
    CLOSE_OVERLOADED,
    CLOSE_REPLACED,
    CLOSE_UNAUTHORIZED,
    NODES_MAX,
    LinkLimits,
)
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.measured.breaker import BreakerState, KnownNodes
from controlplane.gateway.nodes.measured.loads import LoadTable
from controlplane.gateway.nodes.models import Approval, ServedModel, served_models
from controlplane.gateway.nodes.peers import cap_probing, eject_slow
from controlplane.gateway.nodes.reports import JobTickets, LateReports, OnReport
from controlplane.gateway.nodes.stream import JobStream
from controlplane.gateway.ports import FleetPort, LedgerAway, NodeIdentity, Orders
from controlplane.kernel.tasks import end
from inference.contract import frames
from inference.contract.places import GatewayAddress, takes
from inference.contract.replay import Resume

log = logging.getLogger(__name__)

# What the database calls a node's states.
CONNECTED, DRAINING, DISCONNECTED, QUARANTINED = (
    "connected", "draining", "disconnected", "quarantined",
)  # fmt: skip

# Of a model that is not configured.
NOTHING = Approval(digests=frozenset())


class Fleet:
    """Nodes of `pools`, of all where none is named."""

    def __init__(
        self,
        gateway: str,
        *,
        ticket_keys: Sequence[bytes],
        on_report: OnReport,
        pools: Collection[str] = (),
        port: FleetPort | None = None,
        limits: LinkLimits | None = None,
    ) -> None:
        self.gateway = gateway
        self.gateways: tuple[GatewayAddress, ...] = ()
        self.pools = frozenset(pools)
        self.limits = limits or LinkLimits()
        self.reports = LateReports(on_report)
        self.assets = AssetStore(arrived=self._assets_arrived)
        self.drafts = DraftCounts()
        self.on_change: list[Callable[[], None]] = []
        self.on_credit: list[Callable[[NodeLink], None]] = []
        self._port = port
        self._tickets = JobTickets(ticket_keys, gateway)
        self._links: dict[str, NodeLink] = {}
        self._joining: set[NodeLink] = set()
        self._models: dict[str, ServedModel] = {}
        self._indexes: dict[int, PrefixIndex] = {}
        self._loads = LoadTable(NODES_MAX)
        self._epochs = Epochs()
        self._known = KnownNodes(eject_s=self.limits.eject_s, changed=self._refresh)
        self._approvals: Mapping[str, Approval] | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._checking: asyncio.Task[None] | None = None

    # What stages read.

    def models(self) -> Mapping[str, ServedModel]:
        """Every model that can be served now: a ready node and its tokenizer are here."""
        return self._models

    def candidates(self, model: str) -> tuple[NodeLink, ...]:
        """The nodes that take jobs for a model; empty when none does."""
        served = self._models.get(model)
        return () if served is None else served.nodes

    def approve(self, approvals: Mapping[str, Approval]) -> None:
        """From now on fetch and serve these models alone, each as staff approved it."""
        self._approvals = approvals
        self._refresh()

    def _approval(self, model: str) -> Approval:
        if self._approvals is None:
            return Approval()
        return self._approvals.get(model, NOTHING)

    def _approved(self, offer: frames.ModelOffer) -> bool:
        return self._approval(offer.name).admits(offer)

    def nodes(self) -> Mapping[str, NodeLink]:
        """Every admitted node by name, draining and pending ones included."""
        return self._links

    def approved_nodes(self) -> list[NodeLink]:
        """Nodes whose figures count for the installation: staff let them in, and something that
        they serve.
        """
        return [link for link in self._links.values() if self._counts(link)]

    def _counts(self, link: NodeLink) -> bool:
        approved = any(map(self._approved, link.hello.models))
        return approved and link.orders.standing != "pending"

    @property
    def ejected(self) -> int:
        """How many nodes have an open breaker; the last of a model gets work all the same."""
        opened = BreakerState.OPEN
        return sum(link.breaker.state is opened for link in self._links.values())

    def index(self, block_size: int) -> PrefixIndex:
        return self._indexes.setdefault(block_size, PrefixIndex())

    def dispatch(self, link: NodeLink, job: frames.Job, *, cached_tokens: int = 0) -> JobStream:
        """Send a job to a node; raises `NoCredit` or LookupError.

        From here on the caller owes `acknowledge` after its commit, or `abandon` without one.
        """
        ticket = self._tickets.issue(job, node=link.identity.id, epoch=link.hello.epoch)
        job = msgspec.structs.replace(job, ticket=ticket)
        stream = link.dispatch(job, cached_tokens=cached_tokens)
        self.reports.call_began(job.request)
        return stream

    def acknowledge(self, link: NodeLink, request: bytes) -> None:
        """The charge is on the ledger: the node may forget its report."""
        self.reports.call_ended(request)
        self.reports.acknowledge(link, request)

    def abandon(self, request: bytes) -> None:
        """The call ends without a committed charge: the ledger decides what its report does."""
        self.reports.call_ended(request)

    def tell_gateways(self, gateways: tuple[GatewayAddress, ...]) -> None:
        """All nodes learn which gateways live now."""
        self.gateways = gateways
        for link in self._links.values():
            link.tell_gateways()

    # What the socket calls.

    def connect(
        self,
        identity: NodeIdentity,
        *,
        send: Callable[[bytes], None],
        close: Callable[[int, str], None],
    ) -> NodeLink:
        """A node's socket is open; raises `LinkRefused`."""
        if identity.orders.quarantined:
            raise LinkRefused(CLOSE_FORBIDDEN, "quarantined")
        if len(self._links) + len(self._joining) >= NODES_MAX:
            raise LinkRefused(CLOSE_OVERLOADED, f"this gateway holds {NODES_MAX} nodes")
        known = self._known.find(identity.name)
        link = NodeLink(self, identity, send=send, close=close, limits=self.limits, known=known)
        self._joining.add(link)
        self._tick_later()
        return link

    async def close(self) -> None:
        """Close every link and wait for reports and parsing under way."""
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        await end(self._checking)
        for link in self._all_links():
            link.close(CLOSE_GOING_AWAY, "the gateway is going away")
        await self.reports.close()
        await self.assets.close()

    # What links call: `LinkHost`.

    def takes(self, pool: str) -> bool:
        return takes(self.pools, pool)

    def admit(self, link: NodeLink, hello: frames.Hello) -> None:
        """Take a node in, fencing an older one of its name; raises `LinkRefused`."""
        if not self._epochs.take(hello.node, hello.epoch):
            raise LinkRefused(CLOSE_FENCED, "a newer start of this node has replaced this one")
        old = self._links.get(hello.node)
        if old is not None:
            same = old.hello.epoch == hello.epoch
            code = CLOSE_REPLACED if same else CLOSE_FENCED
            old.close(code, "replaced by a newer link of this node")
        self._joining.discard(link)
        self._links[hello.node] = link
        self._known.join(hello.node, link.known)
        self.index(hello.block_size).join(hello.node, hello.kv_blocks)
        self._loads.join(link.account)

    def resume(self, link: NodeLink, frame: Resume) -> bool:
        """Hand the socket of a new link to the one whose session this is; False if there is none.

        A node whose registration has changed since must say hello, which is checked against it.
        """
        old = self._links.get(link.identity.name)
        if old is None or not frame.session or frame.session != old.hello.session:
            return False
        identity = msgspec.structs.replace(link.identity, orders=old.identity.orders)
        if identity != old.identity or not old.resume(link.session.socket, frame):
            return False
        self._joining.discard(link)
        return True

    def broken(self, link: NodeLink, reason: str) -> None:
        """The link has lost its socket and waits for another; until then it takes no jobs."""
        log.warning(
            "link broken name=%s reason=%r jobs=%d", link.identity.name, reason, len(link.jobs)
        )
        self._refresh()

    def leave(self, link: NodeLink, reason: str) -> None:
        self._joining.discard(link)
        self.assets.source_lost(link)
        name = link.identity.name
        if self._links.get(name) is not link:
            return
        del self._links[name]
        self._known.leave(name)
        self.index(link.hello.block_size).drop(name)
        self._loads.drop(link.account)
        log.info("node left name=%s reason=%r jobs=%d", name, reason, len(link.jobs))
        if not link.orders.quarantined:
            self._observe(link, DISCONNECTED, reason=reason)
        self._refresh()

    def changed(self, link: NodeLink) -> None:
        """The link has become ready, or its orders or what it takes have changed."""
        log.info(
            "node %s %s name=%s engine=%s credits=%d",
            link.state.value, link.orders.standing, link.identity.name, link.hello.engine,
            link.hello.credits,
        )  # fmt: skip
        self._observe(link, DRAINING if link.drains else CONNECTED)
        self._refresh()

    def freed(self, link: NodeLink) -> None:
        for callback in self.on_credit:
            callback(link)

    def spare(self, link: NodeLink, model: str) -> bool:
        """Another node has room for a job of this one."""
        return any(
            other is not link
            and other.hello.pool == link.hello.pool
            and other.breaker.state is not BreakerState.OPEN
            and other.account.credits_left > 0
            for other in self.candidates(model)
        )

    def quarantine(self, link: NodeLink, reason: str) -> None:
        link.orders = Orders(quarantined=True)
        log.error("node quarantined name=%s reason=%r", link.identity.name, reason)
        self._observe(link, QUARANTINED, reason=reason, quarantine_s=self.limits.quarantine_s)

    def on_kv(self, link: NodeLink, events: frames.KvEvents) -> bool:
        """Index events; False asks for a snapshot. Raises `BadEvents`."""
        return self.index(link.hello.block_size).apply(link.identity.name, events)

    def on_report(self, link: NodeLink, report: frames.Report) -> None:
        """A final usage that no output of this link settles. Raises `BadClaim`.

        That of a node that staff do not trust at present waits on the node.
        """
        giver = self._tickets.giver(report, node=link.identity.id, epoch=link.hello.epoch)
        if giver is None:
            raise BadClaim("report.ticket: no job that this node was given")
        # Its ticket says that the job was given to it, whether it offers that model still or not.
        offered = [offer for offer in link.hello.models if offer.name == report.model]
        if link.orders.standing != "pending" and all(map(self._approved, offered)):
            self.reports.offer(link, report, giver)

    def on_drafts(self, link: NodeLink, drafts: DraftedTokens) -> None:
        if self._counts(link):
            self.drafts.add(drafts)

    def on_asset(self, link: NodeLink, part: frames.AssetPart) -> str | None:
        """One part of a tokenizer; why it is uncalled for, if so. Raises `BadAssets`."""
        return self.assets.on_part(link, part)

    def _assets_arrived(self, digest: str) -> None:
        log.info("assets ready digest=%s", digest[:12])
        self._refresh()

    def _refresh(self) -> None:
        """Work out anew what can be served, and ask for assets that are missing."""
        for link in self._links.values():
            if link.state is LinkState.CONNECTED:
                continue  # Asked once it has its welcome, which nothing may precede.
            for offer in link.hello.models:
                if offer.digest and self._approved(offer):
                    self.assets.want(offer.digest, link, model=offer.name)
        self._models = served_models(
            self._links.values(), text_of=self.assets.get, approval_of=self._approval
        )
        for served in self._models.values():
            cap_probing(served.nodes)
        for callback in self.on_change:
            callback()

    def _observe(self, link: NodeLink, state: str, **facts: object) -> None:
        if self._port is None:
            return
        if state in (CONNECTED, DRAINING):
            hello = link.hello
            facts |= {
                "epoch": hello.epoch, "pool": hello.pool, "region": hello.region,
                "engine": hello.engine, "device": hello.device, "dtype": hello.dtype,
                "capabilities": list(hello.capabilities),
                "kv_blocks": hello.kv_blocks, "block_size": hello.block_size,
                "credits": hello.credits, "models": [offer.name for offer in hello.models],
                "cold_start_ms": hello.cold_start_ms, "release": hello.release,
                "separates_tenants": link.separates_tenants,
                "ceilings": hello.ceilings and msgspec.structs.asdict(hello.ceilings),
                "path": hello.path and msgspec.structs.asdict(hello.path),
                "offers": [{"model": each.name, "digest": each.digest} for each in hello.models],
            }  # fmt: skip
        self._port.observe(link.identity.id, state, facts)

    def _all_links(self) -> list[NodeLink]:
        return [*self._links.values(), *self._joining]

    def _tick_later(self) -> None:
        if self._ticker is None:
            loop = asyncio.get_running_loop()
            self._ticker = loop.call_later(self.limits.tick_s, self._tick)

    def look(self) -> None:
        """What each node's silence means by now; where one stands still, the others are asked for a
        sign of life at once, since nodes are often lost together.
        """
        for link in self._all_links():
            link.tick()
        links = list(self._links.values())
        if any(link.suspect for link in links):
            for link in links:
                if not link.suspect:
                    link.ping()

    def _tick(self) -> None:
        self._ticker = None
        self.look()
        for served in list(self._models.values()):
            eject_slow(served.name, served.nodes)
        self._known.tick()
        self.assets.close_stalled()
        if self._port is not None and (self._checking is None or self._checking.done()):
            self._checking = asyncio.create_task(self._follow_orders(self._port))
        if self._links or self._joining:
            self._tick_later()

    async def _follow_orders(self, port: FleetPort) -> None:
        """Drain, take back or cut nodes, as staff have decided since the handshake."""
        links = self._all_links()
        try:
            told = await port.orders([link.identity for link in links])
        except LedgerAway:
            return  # Asked again at the next tick; meanwhile the nodes that are here serve on.
        for link in links:
            orders = told[link.identity]
            if orders.lapsed:
                link.close(CLOSE_UNAUTHORIZED, orders.lapsed)
            elif orders.quarantined:
                link.orders = orders
                link.close(CLOSE_FORBIDDEN, "quarantined")
            else:
                link.obey(orders)
