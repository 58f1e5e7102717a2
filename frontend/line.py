"""The client's line as a request's page tells it: its round-trip time, and whose line it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PROXY = "proxy"
OUTSIDE = "smoothed by the kernel; in no stage and not in the total"
PROXIED = "the line to a trusted proxy; the client's own, behind it, is not known"
UNKNOWN = "the server or its kernel told none"


@dataclass(frozen=True)
class ClientLine:
    """`rtt_us` is None where nothing was told; it is never zero."""

    rtt_us: int | None
    title: str
    whose: str
    hint: str


def read_line(receipt: Mapping[str, Any]) -> ClientLine:
    """From a request's receipt; those of refusals and of older requests may have none."""
    told = receipt.get("line")
    rtt_us = told.get("rtt_us") if isinstance(told, dict) else None
    if not isinstance(told, dict) or not isinstance(rtt_us, int) or rtt_us <= 0:
        return ClientLine(None, "Client's line", "the client", UNKNOWN)
    if told.get("of") == PROXY:
        return ClientLine(rtt_us, "Proxy's line", "the proxy", PROXIED)
    return ClientLine(rtt_us, "Client's line", "the client", OUTSIDE)
