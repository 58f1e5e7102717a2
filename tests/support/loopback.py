"""Ports of this machine's own."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


def free_port() -> int:
    """A loopback port that nobody has now."""
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])
