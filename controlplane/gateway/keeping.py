"""An answer on its way out, with a copy kept for retries with the same `Idempotency-Key`."""

from __future__ import annotations

from controlplane.gateway.ports import KeptAnswer, Ticket
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.trip import Out, Trip, made

ANSWER_BYTES_MAX = 256 * 1024


class KeepingOut:
    """A `trip.Out` that remembers what it sent, up to a bound."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._sent: list[bytes] = []
        self._size = 0

    @property
    def started(self) -> bool:
        """Whether the status line is out."""
        return self._out.started

    async def refuse(self, refusal: Refusal, trip: Trip) -> None:
        """Pass it on; refusals are not kept."""
        await self._out.refuse(refusal, trip)

    async def replay(self, kept: KeptAnswer, trip: Trip) -> None:
        """Pass it on."""
        await self._out.replay(kept, trip)

    async def event(self, data: bytes, trip: Trip) -> None:
        """Send events."""
        self._note(data)
        await self._out.event(data, trip)

    async def end(self, data: bytes, trip: Trip) -> None:
        """Send the last bytes."""
        await self._out.end(data, trip)

    def whole(self, last: bytes) -> bytes | None:
        """All of the answer with its last bytes; None where it is too large to keep."""
        self._note(last)
        return b"".join(self._sent) if self._size <= ANSWER_BYTES_MAX else None

    def _note(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= ANSWER_BYTES_MAX:
            self._sent.append(data)
        else:
            self._sent.clear()


async def keep_answer(trip: Trip, last: bytes) -> None:
    """Before the last bytes leave: whoever saw a whole answer can have it again."""
    if trip.ticket is None or not isinstance(trip.out, KeepingOut):
        return
    data = trip.out.whole(last)
    kept = None
    if data is not None:
        kept = KeptAnswer(trip.call.request, made(trip.admitted).ask.stream, data)
    trip.claim_told = True
    await trip.world.claims.keep(trip.ticket, kept)


async def end_claim(trip: Trip, ticket: Ticket) -> None:
    """After anything but a whole answer: charged in part, or free for another try."""
    trip.claim_told = True
    if trip.charge is not None and trip.charge.amount_nano:
        await trip.world.claims.keep(ticket, None)
    else:
        await trip.world.claims.free(ticket)
