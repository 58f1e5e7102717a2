"""The Claims port on PostgreSQL: one connection; kept answers sealed with the caller's API key.

Only requests with an `Idempotency-Key` come here. The key that seals is derived from the presented
secret, of which the database has no more than a keyed digest: who steals the rows reads nothing.
"""

import os
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from controlplane.bridge.postgres.session import AskingSession, Row
from controlplane.gateway.ports import ClaimRefused, IdempotencyTicket, LedgerAway, ReplayedAnswer

PENDING_MAX = 256
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
_decoder = msgspec.msgpack.Decoder(ReplayedAnswer)
_log = structlog.get_logger(__name__)


class PostgresClaims(AskingSession):
    """Implements `ports.Claims`; one per event loop. No hold is open for longer than `open_s`."""

    name = "claims"
    unavailable = "claims on idempotency keys cannot be asked for now"

    def __init__(self, conninfo: str, *, open_s: int) -> None:
        super().__init__(conninfo)
        self._open_s = open_s
        self._pending = 0

    async def claim(self, ticket: IdempotencyTicket) -> ReplayedAnswer | None:
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

    async def hold(self, ticket: IdempotencyTicket) -> bool:
        """Whether the claim is still its own; raises LedgerAway."""
        (mine,) = await self._ask(_HOLD, _named(ticket))
        return bool(mine)

    async def keep(self, ticket: IdempotencyTicket, answer: ReplayedAnswer | None) -> None:
        """Keep what was answered; a failure only costs the replay."""
        sealed = None if answer is None else _sealed(ticket, answer)
        await self._tell(_KEEP, [*_named(ticket), sealed])

    async def free(self, ticket: IdempotencyTicket) -> None:
        """Let a retry begin again; where that fails it may once the ledger shows no charge."""
        await self._tell(_FREE, _named(ticket))

    async def _tell(self, query: str, values: list[Any]) -> None:
        try:
            await self._ask(query, values)
        except LedgerAway as error:
            _log.warning("claim_not_told", error=str(error))

    async def _ask(self, query: str, values: list[Any]) -> Row:
        if self._pending >= PENDING_MAX:
            raise LedgerAway(self.unavailable)
        self._pending += 1
        try:
            rows = await self._rows(query, values)
        finally:
            self._pending -= 1
        if not rows:
            raise LedgerAway(self.unavailable)
        return rows[0]


def _named(ticket: IdempotencyTicket) -> list[Any]:
    return [ticket.id, UUID(bytes=ticket.request)]


def _derived(ticket: IdempotencyTicket, purpose: bytes, text: bytes = b"") -> bytes:
    """32 bytes that only who presents the API key can make."""
    info = b"sluice claim " + purpose + sha256(text).digest()
    made = HKDF(algorithm=SHA256(), length=32, salt=ticket.id, info=info)
    return made.derive(ticket.secret)


def _sealed(ticket: IdempotencyTicket, answer: ReplayedAnswer) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    body = msgspec.msgpack.encode(answer)
    return nonce + AESGCM(_derived(ticket, b"answer")).encrypt(nonce, body, ticket.request)


def _open(ticket: IdempotencyTicket, first: bytes, sealed: bytes) -> ReplayedAnswer | None:
    """None where another secret sealed it, as a Playground session's before."""
    nonce, body = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        return _decoder.decode(AESGCM(_derived(ticket, b"answer")).decrypt(nonce, body, first))
    except InvalidTag:
        return None
