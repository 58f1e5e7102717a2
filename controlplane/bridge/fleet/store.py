"""The Fleet port: credentials of nodes are asked for, their states written in the background."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Literal, NamedTuple

import msgspec
import psycopg
import structlog

from controlplane.bridge.postgres.session import IDLE_CHECK_S, AskingSession, Connection
from controlplane.gateway.ports import LedgerAway, NodeIdentity, Orders
from controlplane.kernel.keys.format import NODE_PREFIX, is_digest, parse_credential

HANDSHAKES_MAX = 10_000
HANDSHAKES_A_QUERY = 500
NODES_PENDING_MAX = 4_096
_CREDENTIALS = (
    "SELECT key_id, node, name, pool, digest, models, standing, drain_s, quarantined,"
    " separate_caches FROM fleet_credentials(%s)"
)
REVOKED = "the node's credential was revoked"
CHANGED = "the node's registration has changed: connect again"
_OBSERVE = "SELECT fleet_observe(%s, %s, %s::jsonb, %s)"
_LINKS = "SELECT fleet_links(%s, %s::jsonb, %s::jsonb)"
QUARANTINED = "quarantined"
_log = structlog.get_logger(__name__)


class CredentialRow(NamedTuple):
    """A credential in force, as `fleet_credentials` tells it."""

    key_id: str
    node: str
    name: str
    pool: str
    digest: bytes
    models: list[str] | None
    standing: Literal["pending", "active", "draining"]
    drain_s: float
    quarantined: bool
    separate_caches: bool


class FleetStore(AskingSession):
    """What the database knows of nodes.

    Observations are kept per node and merged, so a flapping node costs one write at a time; beyond
    the bound new nodes' observations are dropped and counted in `dropped`. With
    `trust_first_digest` the first text assets that are ever offered for a model are approved.
    """

    name = "fleet"
    unavailable = "node credentials cannot be checked now"

    def __init__(
        self,
        conninfo: str,
        *,
        pepper: bytes,
        peppers_before: Sequence[bytes] = (),
        trust_first_digest: bool = False,
    ) -> None:
        super().__init__(conninfo)
        self._peppers = (pepper, *peppers_before)
        self._trust_first_digest = trust_first_digest
        # Handshakes that wait, by key id; one query asks for many of them, so that a flood of
        # unknown credentials keeps neither nodes nor orders waiting.
        self._asked: dict[str, asyncio.Future[CredentialRow | None]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._pending: dict[str, tuple[str, dict[str, object]]] = {}
        self._news = asyncio.Event()
        self.dropped = 0

    async def close(self) -> None:
        """Write what is pending if that is possible at once, then stop."""
        with suppress(psycopg.Error, TimeoutError):
            if self._connection is not None:
                await self._write_pending(self._connection)
        await super().close()
        if self._asking is not None:
            self._asking.cancel()
            with suppress(asyncio.CancelledError):
                await self._asking
        _refuse(self._asked)
        self._asked.clear()

    async def authenticate(self, credential: str) -> NodeIdentity | None:
        """The node behind a credential; raises LedgerAway when it cannot be asked for now."""
        parsed = parse_credential(credential, NODE_PREFIX)
        if parsed is None:
            return None
        row = await self._row_of(parsed.key_id)
        if row is None or not is_digest(row.digest, parsed.text, self._peppers):
            return None
        return msgspec.structs.replace(_identity(row), orders=self._orders(row))

    async def _row_of(self, key_id: str) -> CredentialRow | None:
        if key_id not in self._asked:
            if len(self._asked) >= HANDSHAKES_MAX:
                raise LedgerAway("too many handshakes wait")
            self._asked[key_id] = asyncio.get_running_loop().create_future()
        found = self._asked[key_id]
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(), name="handshakes")
        # Another who presents the same key may wait for it still.
        return await asyncio.shield(found)

    async def _ask(self) -> None:
        while self._asked:
            batch = dict(islice(self._asked.items(), HANDSHAKES_A_QUERY))
            for key_id in batch:
                del self._asked[key_id]
            try:
                rows = await self._valid(list(batch))
            except LedgerAway:
                _refuse(batch)
            except asyncio.CancelledError:
                _refuse(batch)
                raise
            except Exception:  # the edge of the task: whoever waits would wait for ever
                _log.exception("node credentials could not be checked")
                _refuse(batch)
            else:
                for key_id, waiting in batch.items():
                    waiting.set_result(rows.get(key_id))

    async def orders(self, identities: Collection[NodeIdentity]) -> Mapping[NodeIdentity, Orders]:
        """What is said of each of them now; raises LedgerAway."""
        rows = await self._valid([identity.credential for identity in identities])
        found: dict[NodeIdentity, Orders] = {}
        for identity in identities:
            row = rows.get(identity.credential)
            if row is None:
                found[identity] = Orders(lapsed=REVOKED)
            elif _identity(row) != msgspec.structs.replace(identity, orders=Orders()):
                found[identity] = Orders(lapsed=CHANGED)
            else:
                found[identity] = self._orders(row)
        return found

    async def links(
        self, gateway: str, links: Sequence[Mapping[str, object]], waiting: Mapping[str, object]
    ) -> None:
        """Tell this gateway's whole view: links as {node, facts}, and who waits: `models`
        to requests, `tenants` to requests and the longest wait in ms.

        While PostgreSQL is down nothing is kept: the next view says everything again.
        """
        texts = [msgspec.json.encode(each).decode() for each in (links, waiting)]
        with suppress(LedgerAway):
            await self._rows(_LINKS, [gateway, *texts])

    def _orders(self, row: CredentialRow) -> Orders:
        # Of a quarantine that is not written yet the database cannot know.
        noted = self._pending.get(row.node, ("", {}))[0]
        return Orders(
            standing=row.standing,
            drain_s=row.drain_s,
            quarantined=row.quarantined or noted == QUARANTINED,
            separate_caches=row.separate_caches,
        )

    async def _valid(self, key_ids: list[str]) -> dict[str, CredentialRow]:
        """The credentials in force among these, by key id."""
        rows = await self._rows(_CREDENTIALS, [key_ids])
        return {row[0]: CredentialRow(*row) for row in rows}

    def observe(self, node: str, state: str, facts: dict[str, object]) -> None:
        """Note a node's state, by its id or name; the newest wins, facts are merged."""
        before = self._pending.get(node)
        if before is None and len(self._pending) >= NODES_PENDING_MAX:
            self.dropped += 1
            return
        self._pending[node] = (state, {**before[1], **facts} if before else facts)
        self._news.set()

    async def _turn(self, connection: Connection) -> None:
        self._news.clear()
        await self._write_pending(connection)
        if self._pending:
            return
        try:
            async with asyncio.timeout(IDLE_CHECK_S):
                await self._news.wait()
        except TimeoutError:
            # Nothing to write: make sure that the connection still lives.
            await self._fetch(connection, "SELECT 1")

    async def _write_pending(self, connection: Connection) -> None:
        for node, news in list(self._pending.items()):
            await self._write(connection, node, *news)
            # Kept until written: a lost connection loses nothing, and newer news is written next.
            if self._pending.get(node) is news:
                del self._pending[node]

    async def _write(
        self, connection: Connection, node: str, state: str, facts: dict[str, object]
    ) -> None:
        values = [node, state, msgspec.json.encode(facts).decode(), self._trust_first_digest]
        try:
            rows = await self._fetch(connection, _OBSERVE, values)
        except (psycopg.DataError, psycopg.IntegrityError):
            _log.warning("node observation refused", node=node, state=state)
            return
        if not rows or not rows[0][0]:
            _log.warning("observed node is not registered", node=node)


def _refuse(handshakes: Mapping[str, asyncio.Future[CredentialRow | None]]) -> None:
    for waiting in handshakes.values():
        waiting.set_exception(LedgerAway(FleetStore.unavailable))
        # Whoever asked may have hung up: then no one looks at it.
        waiting.exception()


def _identity(row: CredentialRow) -> NodeIdentity:
    return NodeIdentity(
        id=row.node,
        name=row.name,
        models=None if row.models is None else frozenset(row.models),
        pool=row.pool,
        credential=row.key_id,
    )
