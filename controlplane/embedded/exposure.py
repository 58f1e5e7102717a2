"""What a start that listens beyond this machine opens, and the names its pages answer to."""

import os
import socket
from collections.abc import Sequence

import psutil

# Addresses that one can listen on and no one can dial.
WILDCARDS = ("0.0.0.0", "::")
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
LOCAL = ("127.", "localhost", "::1")
HOSTS_VARIABLE = "SLUICE_ALLOWED_HOSTS"


def dialled(host: str) -> str:
    """Where processes of this machine reach what listens on `host`."""
    return LOOPBACK.get(host, host)


def outside(host: str) -> list[str]:
    """Addresses at which other machines may reach it; none where it listens to this one alone."""
    if host.startswith(LOCAL):
        return []
    if host not in WILDCARDS:
        return [host]
    found = [each.address for own in psutil.net_if_addrs().values() for each in own
             if each.family == socket.AF_INET]  # fmt: skip
    return [address for address in found if not address.startswith(LOCAL)]


def names_variable(host: str, known: Sequence[str]) -> dict[str, str]:
    """The variable that lets pages answer to these addresses, unless the operator has set it."""
    found = outside(host)
    if not found or os.environ.get(HOSTS_VARIABLE, "").strip():
        return {}
    return {HOSTS_VARIABLE: ",".join([*known, *found, socket.gethostname()])}


def told(host: str, ports: Sequence[int]) -> str:
    """What a start on this host opens, for its terminal; empty where that is nothing."""
    found = outside(host)
    if not found and host not in WILDCARDS:
        return ""
    lines = [f"Exposed beyond this machine, on {host}, without encryption:"]
    lines += [f"  http://{address}:{port}" for address in found for port in ports]
    lines += [
        "  pages and /api (sign-in), /v1 (API keys), /fleet (node credentials), /metrics (token);",
        "  /healthz, /readyz and /version answer anyone. PostgreSQL and Redis are not exposed.",
        "  On a network that you do not trust put a proxy with TLS in front: docs/deployment.md.",
        "",
    ]
    return "\n".join(lines)
