"""The client's line as a request's page tells it: its round-trip time, and whose line it is."""

from dataclasses import dataclass

from controlplane.kernel.receipt import NetworkLine

PROXY = "proxy"
OUTSIDE = "smoothed by the kernel; not part of any stage or the total"
PROXIED = "the connection to a trusted proxy; the client's own connection is unknown"
UNKNOWN = "not reported by the server or its kernel"


@dataclass(frozen=True)
class ClientLine:
    """`rtt_us` is None where nothing was told; it is never zero."""

    rtt_us: int | None
    title: str
    whose: str
    hint: str


def read_line(line: NetworkLine | None) -> ClientLine:
    """From a request's receipt; those of refusals and of older requests may have none."""
    if line is None or line.rtt_us <= 0:
        return ClientLine(None, "Client network", "the client", UNKNOWN)
    if line.of == PROXY:
        return ClientLine(line.rtt_us, "Proxy's line", "the proxy", PROXIED)
    return ClientLine(line.rtt_us, "Client network", "the client", OUTSIDE)
