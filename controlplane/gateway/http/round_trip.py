"""The round-trip time to the client, which the kernel keeps of its connection.

Linux smooths it over the life of a connection and tells it in `TCP_INFO`. Other kernels and Unix
sockets tell none, and behind a proxy it is the proxy's.
"""

import socket
import struct
from typing import Protocol

import msgspec

UNKNOWN_US = -1
# `tcpi_rtt` of `struct tcp_info` in linux/tcp.h, microseconds: after eight bytes and 15 integers.
_RTT = struct.Struct("=68xI")
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)


class Socket(Protocol):
    """What is asked of a transport's socket."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """As of the standard library; raises OSError or ValueError once it is closed."""


class RoundTrip(msgspec.Struct, eq=False):
    """That of one request's connection: `us` is what was read last, or `UNKNOWN_US`."""

    _socket: Socket | None = None
    us: int = UNKNOWN_US

    def look(self) -> None:
        """Read it now, for two microseconds; of a connection that is closed the last one stays."""
        if self._socket is None or _TCP_INFO is None:
            return
        try:
            told = self._socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _RTT.size)
        except (OSError, ValueError):
            return
        # A kernel that has not measured yet says zero, and none says less than it was asked for.
        if len(told) == _RTT.size and (us := _RTT.unpack(told)[0]):
            self.us = us
