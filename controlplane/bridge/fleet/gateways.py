"""The heartbeats of this gateway: who else lives, and its share of the limits without Redis; and
every other second what it sees of its nodes, and how fresh what it writes is.

A share is trusted for less time than its row stays in the table, counted from before it was asked
for: others divide the whole again only when this gateway has stopped using its part.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import psycopg
import structlog

from controlplane.bridge.fleet.store import FleetStore
from controlplane.bridge.limits.rate_share import NO_SHARE, Division
from controlplane.bridge.postgres.session import QUERY_S_MAX, Connection, PostgresSession
from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.bridge.record.waiting import queue_now
from controlplane.gateway.app_state import AppState
from controlplane.gateway.nodes.link import NodeLink
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.tasks import end
from inference.contract.places import GatewayAddress

HEARTBEAT_S = 1.0
# The table's own bound, in `fleet/sql/functions/gateways.sql`, is 5 s.
LEASE_S = 4.0
LEAVE_S_MAX = 0.5
_ALIVE = (
    "SELECT gateway, gateway_url, granted, gateway_pools FROM fleet_gateway_alive(%s, %s, %s, %s)"
)
_LEAVE = "SELECT fleet_gateway_leave(%s)"
_log = structlog.get_logger(__name__)

Addresses = tuple[GatewayAddress, ...]
REPORT_S = 2.0
# A gateway that no list has had may have begun after the last of them was asked for. Of so many
# that were asked about it is remembered since when.
UNKNOWN_S, UNKNOWN_MAX = 5.0, 10_000


class GatewayList(PostgresSession):
    """`changed` is told of every new list, this gateway's own entry included.

    While PostgreSQL is down the last list stays: it says nothing of who lives by then.
    """

    name = "gateways"

    def __init__(
        self,
        conninfo: str,
        *,
        instance: str,
        url: str,
        pools: tuple[str, ...] = (),
        changed: Callable[[Addresses], None],
    ) -> None:
        super().__init__(conninfo)
        self._instance = instance
        self._url = url
        self._pools = list(pools)
        self._changed = changed
        self._share = NO_SHARE
        self._lease_ends_s = 0.0
        # Of each other gateway when it counts as gone: 0 once it was in a list.
        self._gone_s: dict[str, float] = {}
        self.current: Addresses = ()

    @property
    def share(self) -> Division:
        """How limits are divided now; no share while this gateway may count as dead."""
        return self._share if self.listed() else NO_SHARE

    def listed(self) -> bool:
        """Whether others count this gateway among the living for certain."""
        return monotonic_s() < self._lease_ends_s

    def may_live(self, instance: str) -> bool:
        """Whether another gateway is not known to be gone; one at this one's own address is.

        Without a list that is up to date no one is, nor is one that has only just been heard of.
        """
        now_s = monotonic_s()
        if not self.listed():
            return True
        urls = [each.url for each in self.current if each.instance == instance]
        if urls:
            return not self._url or urls != [self._url]
        if len(self._gone_s) >= UNKNOWN_MAX:
            self._gone_s.clear()
        return now_s < self._gone_s.setdefault(instance, now_s + UNKNOWN_S)

    async def close(self) -> None:
        """Stop, and leave the list if that is possible at once."""
        if self._task is None:
            return
        self._share = NO_SHARE
        await super().close()
        with suppress(psycopg.Error, OSError, TimeoutError):
            async with asyncio.timeout(LEAVE_S_MAX):
                await self._leave()

    async def _leave(self) -> None:
        # The session's own connection ended with its task, maybe amid a call.
        connection = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
        async with connection:
            await connection.execute(_LEAVE, [self._instance])

    async def _work(self, connection: Connection) -> None:
        while True:
            async with asyncio.timeout(QUERY_S_MAX):
                await self._say(connection)
            await asyncio.sleep(HEARTBEAT_S)

    async def _say(self, connection: Connection) -> None:
        asked_s, held = monotonic_s(), self.share
        cursor = await connection.execute(
            _ALIVE, [self._instance, self._url, held.gateways, self._pools]
        )
        rows = await cursor.fetchall()
        granted: int = rows[0][2]
        if granted != held.gateways:
            self._share = Division(granted, monotonic_s())
            _log.info("limits are divided again", live=len(rows), share_of=granted)
        self._lease_ends_s = asked_s + LEASE_S
        current = tuple(
            GatewayAddress(instance=row[0], url=row[1], pools=tuple(row[3])) for row in rows
        )
        if current != self.current:
            # Whoever was in a list and is in none any more is gone at once.
            self._gone_s |= {each.instance: 0.0 for each in current}
            self.current = current
            self._changed(current)


class LinkReporter:
    """Tells the database until it is closed; a view that cannot be told is not kept."""

    def __init__(
        self,
        state: AppState,
        store: FleetStore,
        recorder: PostgresRecorder,
        *,
        limits_shared: Callable[[], bool],
    ) -> None:
        self._limits_shared = limits_shared
        self._state = state
        self._store = store
        self._recorder = recorder
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="link reporter")

    async def close(self) -> None:
        if self._task is not None:
            await end(self._task)
            await self._store.links(self._state.fleet.gateway, [], {})

    async def _run(self) -> None:
        fleet = self._state.fleet
        while True:
            links = [
                {"node": link.identity.id, "facts": link_facts(link)}
                for link in fleet.nodes().values()
            ]
            told = queue_now(self._state) | {
                "recorder": self._recorder.facts(),
                "limits_shared": self._limits_shared(),
            }
            await self._store.links(fleet.gateway, links, told)
            await asyncio.sleep(REPORT_S)


def link_facts(link: NodeLink) -> dict[str, object]:
    """What pages show of a link; load figures are the node's own, as of its last step."""
    load, breaker = link.load, link.breaker.facts
    facts: dict[str, object] = {
        "takes_jobs": link.takes_jobs,
        "credits": link.account.credits,
        "active": link.account.active,
        "queued_tokens": link.account.queued_tokens,
        "breaker": breaker.state,
        "breaker_cause": breaker.cause,
        "kv_blocks": link.hello.kv_blocks,
        "epoch": link.hello.epoch,
        "cpu_permille": link.cpu_permille,
    }
    if load is not None:
        facts |= {
            "running": load.running,
            "waiting": load.waiting,
            "kv_free_blocks": load.kv_free_blocks,
            "step_us": load.step_us,
        }
        if load.shares is not None:
            facts |= {"decode_share": load.shares.decode, "prefill_share": load.shares.prefill}
    return facts
