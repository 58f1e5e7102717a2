"""The Safety port: asks the host's classifier process over a Unix socket, starting it if need be.

`start_process` is called when a project turns the layer on, so that it is warm when asked.
"""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
from pathlib import Path

from controlplane.kernel.clock import monotonic_s

SCORE_S_MAX = 1.0
START_AGAIN_S = 10.0
TEXT_BYTES_MAX = 16_384
LENGTH = struct.Struct("<I")
SCORE = struct.Struct("<d")


class SafetyClient:
    """One connection per gateway; texts are asked one after the other on it."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._started_at_s = -START_AGAIN_S
        self._process: subprocess.Popen[bytes] | None = None

    async def score(self, text: str) -> float:
        """Probability that the text is abusive; raises TimeoutError past `SCORE_S_MAX`."""
        try:
            async with asyncio.timeout(SCORE_S_MAX), self._lock:
                return await self._ask(text.encode()[:TEXT_BYTES_MAX])
        except (OSError, asyncio.IncompleteReadError) as error:
            self._hang_up()
            self.start_process()
            raise TimeoutError("the classifier is not there") from error
        except (TimeoutError, asyncio.CancelledError):
            # A late answer would be taken for the next one's.
            self._hang_up()
            raise

    async def close(self) -> None:
        """Close the connection; the process leaves by itself when idle."""
        self._hang_up()
        if self._process is not None:
            # It may serve other gateways of this host, so it is left to leave by itself.
            self._process.poll()

    async def _ask(self, data: bytes) -> float:
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(self._socket)
        reader, writer = self._streams
        writer.write(LENGTH.pack(len(data)) + data)
        await writer.drain()
        (score,) = SCORE.unpack(await reader.readexactly(SCORE.size))
        return float(score)

    def _hang_up(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    def start_process(self) -> None:
        """Start the host's classifier; where one runs already, the second leaves at once."""
        now = monotonic_s()
        if now - self._started_at_s < START_AGAIN_S:
            return
        self._started_at_s = now
        command = [sys.executable, "-m", "controlplane.bridge.safety_process", str(self._socket)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
