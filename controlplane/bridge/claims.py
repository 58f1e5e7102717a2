"""The Claims port on PostgreSQL: one connection; kept answers sealed with the caller's API key.

Only requests with an `Idempotency-Key` come here. The key that seals is derived from the presented
secret, of which the database has no more than a keyed digest: who steals the rows reads nothing.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from controlplane.bridge.session import Connection, keep_session
from controlplane.gateway.ports import ClaimRefused, KeptAnswer, LedgerAway, Ticket

QUERY_S_MAX = 2.0
PENDING_MAX = 256
IDLE_CHECK_S = 5.0
KEPT_S = 86_400
# A claim that got no hold within this time has lost its gateway.
UNHELD_S = 30
# How soon after the charge its gateway keeps the answer.
SETTLED_S = 5
NONCE_BYTES = 12
_CLAIM = (
    "SELECT verdict, first, answer FROM inference_claim(%s, %s, %s, %s,"
    f" {UNHELD_S}, %s, {SETTLED_S}, {KEPT_S})"
)
_HOLD = "SELECT inference_claim_hold(%s, %s)"
_KEEP = "SELECT inference_claim_keep(%s, %s, %s)"
_FREE = "SELECT inference_claim_free(%s, %s)"
_AWAY = "claims on idempotency keys cannot be asked for now"
_decoder = msgspec.msgpack.Decoder(KeptAnswer)
_log = structlog.get_logger(__name__)


class PostgresClaims:
    """Implements `ports.Claims`; one per event loop. No hold is open for longer than `open_s`."""

    def __init__(self, conninfo: str, *, open_s: int) -> None:
        self._conninfo = conninfo
        self._open_s = open_s
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._pending = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether it can be asked."""
        return self._connection is not None

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._task = asyncio.create_task(
            keep_session(self._conninfo, "claims", self._serve), name="claims"
        )

    async def close(self) -> None:
        """Cut the connection."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def claim(self, ticket: Ticket) -> KeptAnswer | None:
        """The answer of the first request, None for the first; raises as the port says."""
        payload = _derived(ticket, b"payload", ticket.body_digest)
        row = await self._ask(
            _CLAIM,
            [
                ticket.id,
                UUID(ticket.organization),
                payload,
                UUID(bytes=ticket.request),
                self._open_s,
            ],  # fmt: skip
        )
        verdict, first, sealed = row
        if verdict == "mine":
            return None
        if verdict != "kept":
            raise ClaimRefused(verdict, first.bytes)
        opened = _open(ticket, first.bytes, bytes(sealed))
        if opened is None:
            raise ClaimRefused("charged", first.bytes)
        return opened

    async def hold(self, ticket: Ticket) -> bool:
        """Whether the claim is still its own; raises LedgerAway."""
        (mine,) = await self._ask(_HOLD, _named(ticket))
        return bool(mine)

    async def keep(self, ticket: Ticket, answer: KeptAnswer | None) -> None:
        """Keep what was answered; a failure only costs the replay."""
        sealed = None if answer is None else _sealed(ticket, answer)
        await self._tell(_KEEP, [*_named(ticket), sealed])

    async def free(self, ticket: Ticket) -> None:
        """Let a retry begin anew; where that fails it may once the ledger shows no charge."""
        await self._tell(_FREE, _named(ticket))

    async def _serve(self, connection: Connection) -> None:
        self._connection = connection
        try:
            while True:
                await asyncio.sleep(IDLE_CHECK_S)
                async with asyncio.timeout(QUERY_S_MAX), self._lock:
                    await connection.execute("SELECT 1")
        finally:
            self._connection = None

    async def _tell(self, query: str, values: list[Any]) -> None:
        try:
            await self._ask(query, values)
        except LedgerAway as error:
            _log.warning("claim_not_told", error=str(error))

    async def _ask(self, query: str, values: list[Any]) -> tuple[Any, ...]:
        connection = self._connection
        if connection is None or self._pending >= PENDING_MAX:
            raise LedgerAway(_AWAY)
        self._pending += 1
        try:
            async with asyncio.timeout(QUERY_S_MAX), self._lock:
                row = await (await connection.execute(query, values)).fetchone()
        except (psycopg.Error, TimeoutError) as error:
            raise LedgerAway(_AWAY) from error
        finally:
            self._pending -= 1
        if row is None:
            raise LedgerAway(_AWAY)
        return row


def _named(ticket: Ticket) -> list[Any]:
    return [ticket.id, UUID(bytes=ticket.request)]


def _derived(ticket: Ticket, purpose: bytes, text: bytes = b"") -> bytes:
    """32 bytes that only who presents the API key can make."""
    info = b"sluice claim " + purpose + sha256(text).digest()
    made = HKDF(algorithm=SHA256(), length=32, salt=ticket.id, info=info)
    return made.derive(ticket.secret)


def _sealed(ticket: Ticket, answer: KeptAnswer) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    body = msgspec.msgpack.encode(answer)
    return nonce + AESGCM(_derived(ticket, b"answer")).encrypt(nonce, body, ticket.request)


def _open(ticket: Ticket, first: bytes, sealed: bytes) -> KeptAnswer | None:
    """None where another secret sealed it, as a Playground session's before."""
    nonce, body = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        return _decoder.decode(AESGCM(_derived(ticket, b"answer")).decrypt(nonce, body, first))
    except InvalidTag:
        return None
