"""How many connections a process may have open, in all and from one address."""

import asyncio
import resource
import socket
from collections import Counter

from controlplane.kernel.keys.scopes import address_counted, caller_within

OPEN_MAX = 8_192
PER_ADDRESS_MAX = 1_024
HEAD_S_MAX = 10.0
# Connections beyond the bounds that are being told so; the rest are closed without a word.
REFUSED_MAX = 64
# Descriptors for all but clients: databases, nodes' files, logs.
DESCRIPTORS_KEPT = 256


class Doors:
    """Counts open connections; those of trusted proxies only in all, since all clients are theirs.

    `trusted` are networks of proxies.
    """

    def __init__(self) -> None:
        self.open_max = OPEN_MAX
        self.per_address_max = PER_ADDRESS_MAX
        self.trusted: tuple[str, ...] = ()
        # How long the headers of a request may take.
        self.head_s = HEAD_S_MAX
        # Being told so now, and ever.
        self.refused = 0
        self.refused_total = 0
        # Open connections by address: of proxies, and of all others.
        self.proxies: Counter[str] = Counter()
        self._of: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """Connections that are open now."""
        return self.proxies.total() + self._of.total()

    def set_bounds(
        self, *, open_max: int, per_address_max: int, trusted: tuple[str, ...], head_s: float
    ) -> None:
        """Take the operator's bounds, and the descriptors that they need."""
        self.open_max = _room_for(open_max)
        self.per_address_max = per_address_max
        self.trusted = trusted
        self.head_s = head_s

    def enter(self, address: str, already_open: int) -> str | None:
        """Count one more; returns what to `leave` with, or None where there is no room for it.

        `already_open` is how many the process has, those of nodes and pages included.
        """
        is_proxy = caller_within(self.trusted, address)
        # A network of clients may have a proxy in it.
        place = address if is_proxy else address_counted(address)
        full = bool(place) and not is_proxy and self._of[place] >= self.per_address_max
        if full or already_open >= self.open_max:
            self.refused_total += 1
            return None
        if place:
            (self.proxies if is_proxy else self._of)[place] += 1
        return place

    def leave(self, place: str) -> None:
        if place:
            counted = self.proxies if place in self.proxies else self._of
            counted[place] -= 1
            if not counted[place]:
                del counted[place]


def same_socket(transport: asyncio.Transport) -> socket.socket | None:
    """The transport's socket, to ask the kernel about: uvloop makes another one for each question.

    It is to be detached before the transport closes it.
    """
    own = transport.get_extra_info("socket")
    if own is None or own.fileno() < 0:
        return None
    return socket.socket(own.family, own.type, own.proto, fileno=own.fileno())


def _room_for(wanted: int) -> int:
    """Raise the process' limit of descriptors so that it can have so many connections open.

    Returns how many it can have.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + DESCRIPTORS_KEPT
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(wanted, soft - DESCRIPTORS_KEPT))
    return wanted
