"""Who dials `/fleet`: each address takes turns at asking, so that a flood from one of them costs
PostgreSQL few questions at a time and keeps no one out, not even nodes of the same address.

A credential that opened a link here before is asked for at once.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from hashlib import sha256
from itertools import islice

from controlplane.gateway.nodes.limits import NODES_MAX
from controlplane.gateway.ports import FleetPort, LedgerAway, NodeIdentity
from controlplane.kernel.keys.scopes import address_counted, caller_address, parse_address

# Questions at a time of one address and in all, and how often the next ones are let go.
ADDRESS_ASKING_MAX = 50
ASKING_MAX = 250
TURN_S = 0.05
# Who may wait for a turn: well below the connections that an address, or all, may have open.
ADDRESS_WAITING_MAX = 512
WAITING_MAX = 4_096
CREDENTIALS_MAX = 2 * NODES_MAX


class TooManyHandshakes(Exception):
    """Too many of the address wait already; after a second these have had their turns."""


class Handshakes:
    """Those of one process. `trusted` are networks of proxies, whose word of the caller's address
    is taken; `refused_total` is how many found no room to wait.
    """

    def __init__(self, trusted: tuple[str, ...] = ()) -> None:
        self.refused_total = 0
        self._trusted = trusted
        self._known: OrderedDict[bytes, None] = OrderedDict()
        # By address: whose turn is next first, and how many questions are not answered yet.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._asking: Counter[str] = Counter()
        self._waiting_count = 0
        self._pause: asyncio.TimerHandle | None = None

    async def identify(
        self, port: FleetPort, credential: str, *, peer: str, headers: Iterable[tuple[bytes, bytes]]
    ) -> NodeIdentity | None:
        """The node behind a credential; raises `TooManyHandshakes` and `LedgerAway`."""
        mark = sha256(credential.encode()).digest()
        if mark in self._known:
            identity = await port.authenticate(credential)
        else:
            told = caller_address(peer, headers, self._trusted)
            address = address_counted(told if parse_address(told) else peer)
            identity = await self._ask(port, credential, address)
        if identity is None:
            self._known.pop(mark, None)
            return None
        self._known[mark] = None
        self._known.move_to_end(mark)
        if len(self._known) > CREDENTIALS_MAX:
            self._known.popitem(last=False)
        return identity

    async def _ask(self, port: FleetPort, credential: str, address: str) -> NodeIdentity | None:
        turn = self._line_up(address)
        try:
            await turn
            return await port.authenticate(credential)
        finally:
            if not turn.cancelled():
                self._asking[address] -= 1
                if not self._asking[address]:
                    del self._asking[address]

    def _line_up(self, address: str) -> asyncio.Future[None]:
        mine = self._waiting.get(address, deque())
        if len(mine) >= ADDRESS_WAITING_MAX:
            self.refused_total += 1
            raise TooManyHandshakes
        if self._waiting_count >= WAITING_MAX:
            self.refused_total += 1
            raise LedgerAway("too many handshakes wait")
        turn = asyncio.get_running_loop().create_future()
        mine.append(turn)
        self._waiting[address] = mine
        self._waiting_count += 1
        if self._pause is None:
            self._give_turns()
        return turn

    def _give_turns(self) -> None:
        """One to each address, then a second to each, and so on while there are any."""
        self._pause = None
        if not self._waiting:
            return
        for _ in range(ADDRESS_ASKING_MAX):
            free = (each for each in self._waiting if self._asking[each] < ADDRESS_ASKING_MAX)
            for address in list(islice(free, ASKING_MAX - self._asking.total())):
                self._give_turn(address)
        self._pause = asyncio.get_running_loop().call_later(TURN_S, self._give_turns)

    def _give_turn(self, address: str) -> None:
        mine = self._waiting.pop(address)
        turn = mine.popleft()
        self._waiting_count -= 1
        if not turn.cancelled():
            self._asking[address] += 1
            turn.set_result(None)
        if mine:
            self._waiting[address] = mine  # Its next turn is after everybody else's.
