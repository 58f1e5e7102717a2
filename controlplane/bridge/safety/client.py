"""The Safety port: asks the host's classifier process over a Unix socket, starting it if need be.

`start_process` is called when a project turns the layer on, so that it is warm when asked.
"""

import asyncio
import struct
import subprocess
import sys
from pathlib import Path

from controlplane.kernel.clock import monotonic_s

SCORE_S_MAX = 1.0
# The classifier has a thread for each, and a host few cores for it.
CONNECTIONS_MAX = 4
START_AGAIN_S = 10.0
TEXT_BYTES_MAX = 16_384
LENGTH = struct.Struct("<I")
SCORE = struct.Struct("<d")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class SafetyClient:
    """A few connections per gateway; each carries one text at a time and is its asker's alone."""

    def __init__(self, socket: Path, score_s: float = SCORE_S_MAX) -> None:
        self._socket = socket
        self.score_s = score_s
        self._turns = asyncio.Semaphore(CONNECTIONS_MAX)
        self._idle: list[Streams] = []
        self._started_at_s = -START_AGAIN_S
        self._process: subprocess.Popen[bytes] | None = None

    async def score(self, text: str) -> float:
        """Probability that the text is abusive; raises TimeoutError past `score_s`."""
        try:
            async with asyncio.timeout(self.score_s), self._turns:
                return await self._ask(text.encode()[:TEXT_BYTES_MAX])
        except TimeoutError:
            # Busy, not gone: another process would only make it slower.
            raise
        except (OSError, asyncio.IncompleteReadError) as error:
            self.start_process()
            raise TimeoutError("the classifier is not there") from error

    async def close(self) -> None:
        """Close idle connections; the process leaves by itself when no one asks."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()
        if self._process is not None:
            # It may serve other gateways of this host, so it is left to leave by itself.
            self._process.poll()

    async def _ask(self, data: bytes) -> float:
        streams = self._take_idle() or await asyncio.open_unix_connection(self._socket)
        reader, writer = streams
        try:
            writer.write(LENGTH.pack(len(data)) + data)
            await writer.drain()
            (score,) = SCORE.unpack(await reader.readexactly(SCORE.size))
        except BaseException:
            # A late answer would be taken for the next one's.
            writer.close()
            raise
        self._idle.append(streams)
        return float(score)

    def _take_idle(self) -> Streams | None:
        """A connection that still stands: the process may have left since the last text."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    def start_process(self) -> None:
        """Start the host's classifier unless this client's own still runs or starts.

        Where another gateway's runs already, the second leaves immediately.
        """
        now = monotonic_s()
        still_runs = self._process is not None and self._process.poll() is None
        if still_runs or now - self._started_at_s < START_AGAIN_S:
            return
        self._started_at_s = now
        command = [sys.executable, "-m", "controlplane.bridge.safety.process", str(self._socket)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
