"""Where clients are: the region that a trusted proxy names, or that of the client's network."""

from collections.abc import Iterable
from functools import lru_cache

from controlplane.gateway.call import Call
from controlplane.kernel.keys.scopes import Network, caller_address, caller_within, parse_address

# Addresses whose network is remembered; one costs about 3 us to find.
REMEMBERED_MAX = 4096


class Places:
    """Regions of clients; without a header and networks it knows none.

    Headers are believed from `trusted_proxies` (networks) only. `header` is its name in lower case.
    """

    def __init__(
        self,
        *,
        header: str = "",
        networks: Iterable[tuple[Network, str]] = (),
        trusted_proxies: tuple[str, ...] = (),
    ) -> None:
        self._header = header.encode("latin-1")
        self._trusted = trusted_proxies
        self._regions = {
            (network.version, network.prefixlen, int(network.network_address)): region
            for network, region in networks
        }
        self._lengths = {
            version: sorted({bits for of, bits, _ in self._regions if of == version}, reverse=True)
            for version in (4, 6)
        }
        self._of_address = lru_cache(REMEMBERED_MAX)(self._find)

    def region_of(self, call: Call) -> str | None:
        """The client's region; None where nothing tells it."""
        named = call.header(self._header) if self._header else None
        if named and caller_within(self._trusted, call.peer):
            return named.strip()
        return self._of_address(self.address_of(call)) if self._regions else None

    def address_of(self, call: Call) -> str:
        """The client's address; behind a trusted proxy the one that it forwards."""
        return caller_address(call.peer, call.headers, self._trusted)

    def _find(self, text: str) -> str | None:
        address = parse_address(text)
        if address is None:
            return None
        value, bits = int(address), address.max_prefixlen
        for length in self._lengths[address.version]:
            network = value >> (bits - length) << (bits - length)
            region = self._regions.get((address.version, length, network))
            if region is not None:
                return region
        return None
