"""The processes of the product, how each of them fails, and how one sees that it works again."""

from __future__ import annotations

import contextlib
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import psutil

from controlplane.embedded import stack
from controlplane.embedded.layout import REDIS_PROGRAMS
from controlplane.embedded.postgres import Postgres
from controlplane.embedded.redis_server import RedisServer
from tests.support.product import Child
from tests.support.servers import Servers

# A supervisor starts again what has ended within about this.
DOWN_S = 1.0
FROZEN_S = 8.0
MIB = 2**20
ACTIONS = ("killed", "frozen", "restarted")


class Target(ABC):
    """One of the product's parts, with all processes that belong to it."""

    name: str

    @abstractmethod
    def processes(self) -> list[psutil.Process]:
        """Those that run now."""

    @abstractmethod
    def kill(self) -> None:
        """End it as a crash would."""

    @abstractmethod
    def stop(self) -> None:
        """End it in order."""

    @abstractmethod
    def start(self) -> None:
        """Start it again."""

    def fail(self, action: str) -> None:
        """Kill it, freeze it for a while or restart it; returns once it is given back."""
        if action == "frozen":
            frozen = self.processes()
            _signal(frozen, signal.SIGSTOP)
            try:
                time.sleep(FROZEN_S)
            finally:
                _signal(frozen, signal.SIGCONT)
            return
        if action == "killed":
            self.kill()
            time.sleep(DOWN_S)
        else:
            self.stop()
        self.start()

    def used(self) -> tuple[float, int]:
        """Private resident MiB and open descriptors of all its processes."""
        mib, descriptors = 0.0, 0
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                memory = process.memory_info()
                mib += (memory.rss - memory.shared) / MIB
                descriptors += process.num_fds()
        return mib, descriptors


class ChildTarget(Target):
    """A process of the product's own."""

    def __init__(self, name: str, child: Child) -> None:
        self.name = name
        self._child = child

    def processes(self) -> list[psutil.Process]:
        """It has no children."""
        return [psutil.Process(self._child.pid)]

    def kill(self) -> None:
        """By SIGKILL."""
        self._child.kill()

    def stop(self) -> None:
        """By SIGTERM."""
        self._child.stop()

    def start(self) -> None:
        """The same command once more."""
        self._child.start()


# What a server's process may be called.
_PROGRAMS = {"redis": REDIS_PROGRAMS, "postgres": ("postgres",)}


class ServerTarget(Target):
    """PostgreSQL or Redis."""

    def __init__(self, name: str, server: Postgres | RedisServer, pid: int) -> None:
        self.name = name
        self._server = server
        self._pid = pid

    def processes(self) -> list[psutil.Process]:
        """The server and its backends; a new start is a new process of ours."""
        if not psutil.pid_exists(self._pid):
            self._pid = _child_of_ours(*_PROGRAMS[self.name])
        server = psutil.Process(self._pid)
        return [server, *server.children()]

    def kill(self) -> None:
        """By SIGKILL of its main process."""
        self._server.kill()

    def stop(self) -> None:
        """In order."""
        self._server.stop()

    def start(self) -> None:
        """Returns once it takes connections."""
        self._server.start()


def server_targets(servers: Servers) -> list[Target]:
    """Redis, and PostgreSQL last."""
    return [
        ServerTarget(name, server, _child_of_ours(*_PROGRAMS[name]))
        for name, server in (("redis", servers.redis), ("postgres", servers.postgres))
    ]


def _child_of_ours(*names: str) -> int:
    """The server of this process whose program is called one of these."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() in names:
                return int(process.pid)
    raise ProcessLookupError(names)


@contextlib.contextmanager
def running_jobs(folder: Path) -> Iterator[list[Target]]:
    """Worker and beat, as `make run` starts them, until the block ends."""
    children = []
    for made in (stack.worker(), stack.beat()):
        argv = [*made.argv]
        if made.name == "beat":
            argv += ["--schedule", str(folder / "schedule")]
        children.append(Child(made.name, argv, made.env, folder / f"{made.name}.log"))
    try:
        for child in children:
            child.start()
        yield [ChildTarget(child.name, child) for child in children]
    finally:
        for child in children:
            child.stop()
            print(f"--- {child.name}\n{child.log[-2_000:]}")


def _signal(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
