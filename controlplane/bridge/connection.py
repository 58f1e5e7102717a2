"""uvicorn's HTTP protocol, with the connection's socket in each scope: `uvicorn --http
controlplane.bridge.connection:SocketProtocol`. Without it requests are served all the same, and
the round-trip time of clients is not known.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from controlplane.gateway.round_trip import EXTENSION


class SocketProtocol(HttpToolsProtocol):
    """Adds the extension that `gateway/round_trip.py` reads."""

    def on_message_begin(self) -> None:
        """A request begins on the connection."""
        super().on_message_begin()
        connection = self.transport.get_extra_info("socket")
        self.scope["extensions"] = {EXTENSION: {"socket": connection}}
