"""Brings a private server back whenever it ends, for ever, with growing waits between tries.

A server that cannot start now, as on a full disk, may start later: nothing else ends because of it.
"""

import subprocess
import time
from abc import ABC, abstractmethod

from controlplane.embedded.layout import Layout
from controlplane.embedded.processes import Say, ServerError
from inference.children import Restarts


class EmbeddedServer(ABC):
    """What PostgreSQL and Redis have alike, and what is asked of both."""

    name: str
    log_name: str

    def __init__(self, layout: Layout, *, password: str, say: Say) -> None:
        self._layout = layout
        self._password = password
        self._say = say
        self._log = layout.data / "log" / self.log_name
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether the server process runs; it may still be recovering."""
        return self._process is not None and self._process.poll() is None

    @abstractmethod
    def start(self) -> None:
        """Return once it answers; raises ServerError."""

    @abstractmethod
    def start_again(self) -> None:
        """The same of one that has run here before; makes nothing new and gives up sooner."""

    @abstractmethod
    def stop(self) -> None:
        """End it. Bounded."""

    def kill(self) -> None:
        """End it as a crash would (tests of recovery)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class KeptServer:
    def __init__(self, server: EmbeddedServer, say: Say) -> None:
        self._server = server
        self._say = say
        self._down = False
        self._restarts = Restarts()

    def start(self) -> None:
        self._server.start()
        self._say(f"{self._server.name} answers")

    def stop(self) -> None:
        self._server.stop()

    def look(self) -> None:
        now = time.monotonic()
        if self._server.alive or now < self._restarts.retry_at:
            return
        name = self._server.name
        if not self._down:
            self._down = True
            self._say(f"{name} exited unexpectedly; restarting it")
        try:
            self._server.start_again()
        except (ServerError, OSError) as error:
            self._say(
                f"{error}\nretrying {name} in {self._restarts.pause_s:.1f} s, until it succeeds"
            )
            self._restarts.put_off(time.monotonic())
            return
        self._down = False
        self._restarts.reset()
        self._say(f"{name} answers again")
