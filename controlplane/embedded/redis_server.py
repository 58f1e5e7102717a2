"""Starter of the private Redis: a socket in a folder of ours, a password, few commands, no disk.

Redis holds no truth here, so it neither saves nor loads anything.
"""

import signal
import subprocess
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from controlplane.embedded import processes
from controlplane.embedded.kept import EmbeddedServer
from controlplane.embedded.layout import REDIS_PROGRAMS, Layout, redis_program

START_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 5.0
MEMORY_MIB_MAX = 256
# Keys, channels and commands that our processes use, as `ACL SETUSER` takes them. What is not here
# is refused also to who has the password: CONFIG, DEBUG, MODULE, EVAL, KEYS, FLUSHALL and others.
RULES = (Path(__file__).parent / "redis_rules.txt").read_text(encoding="ascii").strip()
# The one release that refuses a rule for what it does not know: this came with 7.2.
STRICT, UNKNOWN_THERE = "7.0.", "+client|setinfo "


class RedisServer(EmbeddedServer):
    name, log_name = "Redis", "redis.log"

    def __init__(
        self, layout: Layout, *, password: str, say: processes.Say, file: Path | None = None
    ) -> None:
        """`file` has the password, which each start reads anew, beside a file of earlier ones."""
        super().__init__(layout, password=password, say=say)
        self._file = file
        self._program = redis_program(layout)

    def start(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        folder = self._layout.redis
        for program in REDIS_PROGRAMS:
            if processes.end_left_overs(
                program, folder, polite=signal.SIGTERM, seconds=STOP_SECONDS_MAX
            ):
                self._say("ended a Redis left over from a killed run")
        # The configuration goes through standard input: a password in arguments could be read.
        self._process = processes.spawn(
            [str(self._program), "-"],
            log=self._log,
            folder=self._layout.redis,
            account=self._layout.account,
            stdin=self._configuration().encode(),
        )
        if not processes.wait_until(self._answers, seconds=START_SECONDS_MAX):
            self.stop()
            raise processes.ServerError(f"Redis failed to start:\n{processes.log_tail(self._log)}")

    def start_again(self) -> None:
        """The same: it keeps nothing between two starts."""
        self.start()

    def stop(self) -> None:
        if self._process is not None:
            processes.end(self._process, (signal.SIGTERM, STOP_SECONDS_MAX))
            self._process = None

    def _passwords(self) -> list[str]:
        """All that it takes, the present one first."""
        if self._file is None or not self._file.exists():
            return [self._password]
        before = self._file.with_name(f"{self._file.name}.before")
        found = [self._file, *([before] if before.exists() else [])]
        return [each for path in found for each in path.read_text().split()]

    def _release(self) -> str:
        """Of the program, as `7.0.15`."""
        told = subprocess.check_output([str(self._program), "--version"], text=True)
        return told.partition(" v=")[2].split()[0]

    def _configuration(self) -> str:
        rules = RULES
        if self._release().startswith(STRICT):
            rules = RULES.replace(UNKNOWN_THERE, "")
        lines = (
            "port 0",
            f'unixsocket "{self._layout.redis_socket}"',
            "unixsocketperm 700",
            f"user default on {' '.join(f'>{each}' for each in self._passwords())} {rules}",
            f'dir "{self._layout.redis}"',
            'save ""',
            "appendonly no",
            f"maxmemory {MEMORY_MIB_MAX}mb",
            "maxmemory-policy noeviction",
            "daemonize no",
        )
        return "\n".join(lines) + "\n"

    def _answers(self) -> bool:
        client = redis.Redis(
            unix_socket_path=str(self._layout.redis_socket),
            password=self._passwords()[0],
            retry=Retry(NoBackoff(), 0),
        )
        try:
            return bool(client.ping())
        except (redis.ConnectionError, FileNotFoundError):
            return False
        finally:
            client.close()
