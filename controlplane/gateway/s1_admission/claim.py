"""The claim on an `Idempotency-Key`, before anything is held: a retry is charged once.

What is answered under a claim is kept for retries, up to a bound.
"""

from hashlib import sha256

import msgspec

from controlplane.gateway.call import Call
from controlplane.gateway.ports import (
    ClaimRefused,
    Claims,
    IdempotencyTicket,
    LedgerAway,
    ReplayedAnswer,
)
from controlplane.gateway.refusal import NO_RETRY, Refusal, bad_field
from controlplane.gateway.s1_admission.authenticate import presented
from controlplane.gateway.s1_admission.hold import ledger_away
from controlplane.gateway.snapshot import KeyRecord
from controlplane.kernel.ids import public_request
from controlplane.kernel.spans import INDEX

CLAIM = INDEX["s1_admission.claim"]
HEADER = b"idempotency-key"
KEY_CHARS_MAX = 255
ANSWER_BYTES_MAX = 256 * 1024
RETRY_S = 1


class AnswerReplay(Exception):
    """The answer to this request was given before."""

    def __init__(self, kept: ReplayedAnswer) -> None:
        super().__init__(kept.request.hex())
        self.kept = kept


def make_ticket(call: Call, body: bytes, key: KeyRecord, *, route: str) -> IdempotencyTicket | None:
    """None without the header; raises `Refusal` (400) where it cannot be used."""
    text = call.header(HEADER)
    if text is None:
        return None
    if not 1 <= len(text) <= KEY_CHARS_MAX:
        message = f"The Idempotency-Key header must have 1 to {KEY_CHARS_MAX} characters."
        raise bad_field("idempotency-key", message)
    named = msgspec.json.encode([key.organization, key.id, route, text])
    return IdempotencyTicket(
        id=sha256(named).digest(),
        organization=key.organization,
        request=call.request,
        body_digest=sha256(body).digest(),
        secret=presented(call).encode(),
    )


class HeldClaim(msgspec.Struct, eq=False):
    """A claim that this request holds, and what has been sent under it so far."""

    _ticket: IdempotencyTicket
    _claims: Claims
    _sent: list[bytes] = []
    _size: int = 0
    ended: bool = False

    async def hold(self, call: Call) -> None:
        """Once the money is held: nobody may take the claim over from here on. Raises `Refusal`."""
        began = call.spans.clock()
        try:
            if not await self._claims.hold(self._ticket):
                raise _refused(ClaimRefused("running", self._ticket.request))
        except LedgerAway as error:
            raise ledger_away() from error
        finally:
            call.spans.add(CLAIM, began)

    def note(self, data: bytes) -> None:
        """These bytes of the answer are about to be sent."""
        self._size += len(data)
        if self._size <= ANSWER_BYTES_MAX:
            self._sent.append(data)
        else:
            self._sent.clear()

    async def keep(self, *, stream: bool) -> None:
        """All bytes are noted. Called before the last leave: who has them can retry."""
        kept = None
        if self._size <= ANSWER_BYTES_MAX:
            kept = ReplayedAnswer(self._ticket.request, stream, b"".join(self._sent))
        self.ended = True
        await self._claims.keep(self._ticket, kept)

    async def end(self, *, charged: bool) -> None:
        """After anything but a whole answer: charged in part, or free for another try."""
        self.ended = True
        if charged:
            await self._claims.keep(self._ticket, None)
        else:
            await self._claims.free(self._ticket)


async def take_claim(call: Call, ticket: IdempotencyTicket, claims: Claims) -> HeldClaim:
    """Return for the first request of its key.

    Raises `AnswerReplay`, or `Refusal` (409, 422, 503).
    """
    began = call.spans.clock()
    try:
        kept = await claims.claim(ticket)
    except ClaimRefused as error:
        raise _refused(error) from error
    except LedgerAway as error:
        raise ledger_away() from error
    finally:
        call.spans.add(CLAIM, began)
    if kept is not None:
        raise AnswerReplay(kept)
    return HeldClaim(ticket, claims)


def _refused(error: ClaimRefused) -> Refusal:
    first = public_request(error.first)
    if error.verdict == "mismatch":
        message = (
            f"This Idempotency-Key was used with a different body (request {first}). Use a new "
            "key for each request."
        )
        return Refusal(
            422, "idempotency_mismatch", message, param="idempotency-key", headers=NO_RETRY
        )
    if error.verdict == "running":
        message = f"Request {first} with this Idempotency-Key is in progress."
        headers = (("retry-after", str(RETRY_S)),)
        return Refusal(409, "idempotency_in_progress", message, headers=headers)
    message = (
        f"Request {first} with this Idempotency-Key was or will be charged, but its response was "
        "not kept: it was interrupted, was too large, or its gateway failed. It is not charged "
        "again. To send a new request, use a new key."
    )
    return Refusal(409, "idempotency_charged", message, headers=NO_RETRY)
