"""Ports of this machine's own, which no two tests are given at once."""

from __future__ import annotations

import atexit
import socket

HOST = "127.0.0.1"


def reserve_port(ports: int = 1) -> int:
    """A port, or the first of several in a row, that is ours until this process ends.

    Its socket keeps it from everybody but servers that set SO_REUSEADDR, as all do: they can listen
    there, and again after a restart.
    """
    while True:
        row = [_bind(0)]
        first: int = row[0].getsockname()[1]
        try:
            row += [_bind(first + more) for more in range(1, ports)]
        except (OSError, OverflowError):
            for taken in row:
                taken.close()
            continue
        for one in row:
            atexit.register(one.close)
        return first


def _bind(port: int) -> socket.socket:
    """Bound without SO_REUSEADDR, so that nobody else's is taken; then open to a server."""
    bound = socket.socket()
    try:
        bound.bind((HOST, port))
    except BaseException:
        bound.close()
        raise
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return bound
