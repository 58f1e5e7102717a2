"""`manage.py sluice run` as a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from django.conf import settings

from tests.support.loopback import reserve_port

# As many gateways as any of these starts have, at ports in a row.
ROW = 2
READY_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 60.0


@dataclass
class Started:
    """A running `sluice run` and what it has printed so far."""

    process: subprocess.Popen[str]
    port: int
    text: str

    def family(self) -> list[psutil.Process]:
        """The supervisor and everything it started."""
        head = psutil.Process(self.process.pid)
        return [head, *head.children(recursive=True)]

    def commands(self) -> list[str]:
        """Command lines of the family, without those that end meanwhile."""
        lines = []
        for process in self.family():
            with suppress(psutil.NoSuchProcess):
                lines.append(" ".join(process.cmdline()))
        return lines


def manage(*arguments: str) -> list[str]:
    """A command line of `manage.py sluice`."""
    return [sys.executable, str(settings.BASE_DIR / "manage.py"), "sluice", *arguments]


def environment(data: Path, **more: str) -> dict[str, str]:
    """What such a command needs to find its data folder, and nothing of this process's own."""
    return {"PATH": os.environ["PATH"], "SLUICE_DATA": str(data), "PYTHONUNBUFFERED": "1", **more}


@contextmanager
def running(data: Path, *arguments: str, **variables: str) -> Iterator[Started]:
    """`sluice run` from its welcome until the block ends."""
    port = reserve_port(ROW)
    command = manage("run", "--port", str(port), *arguments)
    with subprocess.Popen(
        command,
        env=environment(data, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield Started(process, port, read_until_ready(process))
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=STOP_SECONDS_MAX)


def read_until_ready(process: subprocess.Popen[str]) -> str:
    """All that it prints until it is ready; fails when it ends before."""
    assert process.stdout is not None
    deadline, lines = time.monotonic() + READY_SECONDS_MAX, []
    for line in process.stdout:
        lines.append(line)
        if "Ctrl-C stops everything" in line:
            return "".join(lines)
        assert time.monotonic() < deadline, "".join(lines)
    pytest.fail("".join(lines))
