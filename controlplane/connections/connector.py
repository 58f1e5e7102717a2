"""The connector's node as a child process: fed on its standard input, started again when it dies.

A secret is in that pipe alone, never in arguments, environment or files.
"""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from inference.children import Restarts, environment_without

# A node drains before it ends.
STOP_SECONDS_MAX = 10.0
# What the control plane was told: the child reads what others send.
HIDDEN = ("SLUICE_", "DJANGO_", "PG")


class ConnectorChild:
    """Runs while there is a line to feed it; `look` does what is due and never blocks."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Callable[[], Mapping[str, str]],
        say: Callable[[str], None],
    ) -> None:
        self._argv, self._env, self._say = argv, env, say
        self._process: subprocess.Popen[bytes] | None = None
        self._told = b""
        self._unsent = b""
        self._restarts = Restarts()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def look(self, line: bytes | None) -> None:
        """Let the child have this line; None ends it."""
        now = time.monotonic()
        if line is None:
            self.stop()
            return
        if self._process is not None and self._process.poll() is not None:
            self._bury(now)
        if self._process is None and now >= self._restarts.retry_at:
            self._start(now)
        if self._process is not None:
            self._feed(line)

    def stop(self) -> None:
        """End the child: asked first, killed after its bound."""
        if self._process is None:
            return
        self._process.terminate()
        self._close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _start(self, now: float) -> None:
        environment = {**environment_without(*HIDDEN), **self._env()}
        self._process = subprocess.Popen(self._argv, stdin=subprocess.PIPE, env=environment)
        assert self._process.stdin is not None
        # A child that does not read must not hold us up.
        os.set_blocking(self._process.stdin.fileno(), False)
        self._restarts.started, self._told, self._unsent = now, b"", b""
        self._say(f"connector node started (process {self._process.pid})")

    def _bury(self, now: float) -> None:
        assert self._process is not None
        self._restarts.recovered(now)
        self._say(
            f"connector node ended with status {self._process.returncode}, next try in "
            f"{self._restarts.pause_s:.1f} s"
        )
        self._close()
        self._process = None
        self._restarts.put_off(now)

    def _feed(self, line: bytes) -> None:
        """Write what the pipe takes; a new line begins only after the one before has ended."""
        assert self._process is not None and self._process.stdin is not None
        if not self._unsent and line != self._told:
            self._told = self._unsent = line
        try:
            if self._unsent:
                written = os.write(self._process.stdin.fileno(), self._unsent)
                self._unsent = self._unsent[written:]
        except BlockingIOError:
            return
        except BrokenPipeError:
            # It is dead or about to be: the next look sees to that.
            return

    def _close(self) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
