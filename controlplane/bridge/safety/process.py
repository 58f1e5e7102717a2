"""The classifier's own process, one per host: `python -m controlplane.bridge.safety.process PATH`.

It loads a linear classifier of abusive text (alt-profanity-check; weights ship in its wheel), which
takes seconds and over 100 MB, so gateways do not load it themselves. A second process on the same
socket leaves before it loads it; one that no one asked for `IDLE_S_MAX` leaves too.
"""

import fcntl
import socketserver
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from controlplane.bridge.safety.client import LENGTH, SCORE, TEXT_BYTES_MAX

IDLE_S_MAX = 600.0
IDLE_CHECK_S = 5.0
SOCKET_MODE = 0o600


class SafetyServer(socketserver.ThreadingUnixStreamServer):
    """Serves any number of gateways, each on a thread of its own."""

    daemon_threads = True
    timeout = IDLE_CHECK_S

    def __init__(self, socket: Path, score: Callable[[Sequence[str]], Sequence[float]]) -> None:
        self.score = score
        socket.unlink(missing_ok=True)
        super().__init__(str(socket), Scorer)
        socket.chmod(SOCKET_MODE)
        self.asked_at_s = time.monotonic()

    def run(self) -> None:
        """Serve until no one has asked for `IDLE_S_MAX`."""
        while time.monotonic() - self.asked_at_s < IDLE_S_MAX:
            self.handle_request()


class Scorer(socketserver.StreamRequestHandler):
    """Answers each text (length, then UTF-8 bytes) with its score (a double), in order."""

    server: SafetyServer

    def handle(self) -> None:
        """One gateway, until it closes or sends more than `TEXT_BYTES_MAX`."""
        while len(head := self.rfile.read(LENGTH.size)) == LENGTH.size:
            (size,) = LENGTH.unpack(head)
            if size > TEXT_BYTES_MAX:
                return
            text = self.rfile.read(size).decode("utf-8", "replace")
            self.server.asked_at_s = time.monotonic()
            self.wfile.write(SCORE.pack(float(self.server.score([text])[0])))


def take_lock(socket: Path) -> TextIO | None:
    """The lock that makes this the host's only one, held while the file is open."""
    lock = socket.with_suffix(".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def main() -> int:
    socket = Path(sys.argv[1])
    lock = take_lock(socket)
    if lock is None:
        return 0
    from profanity_check import predict_prob

    with lock, SafetyServer(socket, predict_prob) as server:
        server.run()
    socket.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
