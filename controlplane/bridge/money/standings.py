"""The Standings port: what a key may still spend, asked of PostgreSQL and remembered for a second.

One question is asked at a time, so that keys that ask often cost others nothing.
"""

import asyncio
import uuid

import msgspec

from controlplane.bridge.postgres.session import AskingSession
from controlplane.gateway.ports import KeyStanding, LedgerAway
from controlplane.kernel.clock import monotonic_s

REMEMBERED_S = 1.0
REMEMBERED_MAX = 1_000
_STANDING = "SELECT config_key_standing(%s)"
_decoder = msgspec.json.Decoder(KeyStanding)


class PostgresStandings(AskingSession):
    """Implements `ports.Standings`."""

    name = "standing"
    unavailable = "budgets cannot be read now"

    def __init__(self, conninfo: str) -> None:
        super().__init__(conninfo)
        self._asking = asyncio.Lock()
        self._remembered: dict[str, tuple[float, KeyStanding]] = {}

    async def of(self, key: str, *, waits: bool = True) -> KeyStanding:
        """What a key may spend and has spent, as it was at most a second ago; raises LedgerAway."""
        if (known := self._known(key)) is not None:
            return known
        if self._asking.locked() and not waits:
            raise LedgerAway("another question is being answered")
        async with self._asking:
            if (known := self._known(key)) is not None:
                return known
            found = await self._read(key)
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[key] = (monotonic_s(), found)
            return found

    def _known(self, key: str) -> KeyStanding | None:
        read_s, standing = self._remembered.get(key, (0.0, None))
        return standing if monotonic_s() - read_s < REMEMBERED_S else None

    async def _read(self, key: str) -> KeyStanding:
        rows = await self._rows(_STANDING, [uuid.UUID(key)])
        # A Playground token has the id of a user: it has no line of keys.
        return _decoder.decode(rows[0][0]) if rows and rows[0][0] else KeyStanding()
