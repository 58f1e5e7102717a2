"""The claim on an `Idempotency-Key`, before anything is held: a retry is charged once."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from controlplane.gateway.call import Call
from controlplane.gateway.ports import ClaimRefused, Claims, KeptAnswer, LedgerAway, Ticket
from controlplane.gateway.refusal import NO_RETRY, Refusal, bad_field
from controlplane.gateway.s1_admission.authenticate import presented
from controlplane.gateway.s1_admission.hold import ledger_away
from controlplane.gateway.snapshot import KeyRecord
from controlplane.kernel.spans import INDEX

CLAIM = INDEX["s1_admission.claim"]
HEADER = b"idempotency-key"
KEY_CHARS_MAX = 255
RETRY_S = 1


class Replay(Exception):
    """The answer to this request was given before."""

    def __init__(self, kept: KeptAnswer) -> None:
        super().__init__(kept.request.hex())
        self.kept = kept


def make_ticket(call: Call, body: bytes, key: KeyRecord, *, route: str) -> Ticket | None:
    """None without the header; raises `Refusal` (400) where it cannot be used."""
    text = call.header(HEADER)
    if text is None:
        return None
    if not 1 <= len(text) <= KEY_CHARS_MAX:
        message = f"The Idempotency-Key header must have 1 to {KEY_CHARS_MAX} characters."
        raise bad_field("idempotency-key", message)
    named = msgspec.json.encode([key.organization, key.id, route, text])
    return Ticket(
        id=sha256(named).digest(),
        organization=key.organization,
        request=call.request,
        body_digest=sha256(body).digest(),
        secret=presented(call).encode(),
    )


async def take_claim(call: Call, ticket: Ticket, claims: Claims) -> None:
    """Return for the first request of its key; raises `Replay` or `Refusal` (409, 422, 503)."""
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
        raise Replay(kept)


async def hold_claim(call: Call, ticket: Ticket, claims: Claims) -> None:
    """Once the money is held: nobody may take the claim over from here on. Raises `Refusal`."""
    began = call.spans.clock()
    try:
        if not await claims.hold(ticket):
            raise _refused(ClaimRefused("running", ticket.request))
    except LedgerAway as error:
        raise ledger_away() from error
    finally:
        call.spans.add(CLAIM, began)


def _refused(error: ClaimRefused) -> Refusal:
    first = error.first.hex()
    if error.verdict == "mismatch":
        message = (
            f"This Idempotency-Key was used for another body (request {first}): use a new one"
            " for each new request."
        )
        return Refusal(
            422, "idempotency_mismatch", message, param="idempotency-key", headers=NO_RETRY
        )
    if error.verdict == "running":
        message = f"Request {first} with this Idempotency-Key is under way."
        headers = (("retry-after", str(RETRY_S)),)
        return Refusal(409, "idempotency_in_progress", message, headers=headers)
    message = (
        f"Request {first} with this Idempotency-Key was charged or may yet be, and its answer is"
        " not kept: it broke off, was too large, or its gateway failed. It is not charged again;"
        " to ask anew, use a new key."
    )
    return Refusal(409, "idempotency_charged", message, headers=NO_RETRY)
