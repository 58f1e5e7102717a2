"""What an API key may be narrowed to besides models: endpoints, and networks of its callers.

Pure, so that the page that takes a network and the gateway that holds a caller against it agree.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

ENDPOINTS = (
    "chat", "messages", "responses", "completions", "embeddings", "rerank", "score", "moderations",
    "tokenize", "batches", "models", "key",
)  # fmt: skip
# What a read-only key may use: nothing here runs a model or costs money.
READ_ENDPOINTS = ("models", "key")
# Pairs of a list and an address whose answer is remembered; one costs about 3 us to find.
REMEMBERED_MAX = 4096

# A site or a person has that much of IPv6, and may take a new address for every request.
IPV6_PREFIX_BITS = 64
FORWARDED = b"x-forwarded-for"

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address


def parse_address(text: str) -> Address | None:
    """An address, an IPv4 one also where it came mapped into IPv6; None where it is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def parse_network(text: str) -> Network:
    """A network as `10.0.0.0/8`, or one address; raises ValueError, also for host bits set."""
    return ip_network(text.strip())


@lru_cache(REMEMBERED_MAX)
def caller_within(networks: tuple[str, ...], caller: str) -> bool:
    """Whether an address is in one of the networks; what is no address is in none."""
    address = parse_address(caller)
    return address is not None and any(address in parse_network(one) for one in networks)


def far_address(peer: str, forwarded: str, proxies: tuple[str, ...]) -> str:
    """Who asks: the socket's `peer`, or where that is one of our proxies who it says.

    Of a forwarded way, its addresses separated by commas, the last counts that is no proxy of
    ours: those before it may be made up.
    """
    if not caller_within(proxies, peer):
        return peer
    hops = [_without_port(hop.strip()) for hop in forwarded.split(",")]
    return next((hop for hop in reversed(hops) if hop and not caller_within(proxies, hop)), peer)


def caller_address(
    peer: str, headers: Iterable[tuple[bytes, bytes]], proxies: tuple[str, ...]
) -> str:
    """The same from a request's headers, whose names are in lower case.

    Some proxies add a header of their own after the client's, so all are read as one.
    """
    told = [value.decode("latin-1") for name, value in headers if name == FORWARDED]
    return far_address(peer, ",".join(told), proxies)


def address_counted(text: str) -> str:
    """What counts as one address: of IPv6 the network that a site has."""
    found = parse_address(text)
    if isinstance(found, IPv6Address):
        return str(IPv6Network((int(found), IPV6_PREFIX_BITS), strict=False))
    return str(found or text)


def _without_port(hop: str) -> str:
    """Some proxies write `192.0.2.7:4711` or `[2001:db8::7]:4711`."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    host, _, port = hop.partition(":")
    return host if port.isdecimal() else hop


def network_covered(inner: str, outer: Iterable[str]) -> bool:
    """Whether every address of `inner` is in one and the same network of `outer`."""
    network = parse_network(inner)
    return any(
        network.network_address in other and network.prefixlen >= other.prefixlen
        for other in map(parse_network, outer)
    )
