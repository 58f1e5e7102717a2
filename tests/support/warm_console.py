"""`sluice COMMAND` many times, from a process that has imported and set up Django once.

Each command is a fork of it, which ends as the real program does; to start that takes 2 s of CPU.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import django
from django.core.checks import run_checks

from controlplane.__main__ import main


class WarmConsole:
    """The console of an installation's data folder."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What the command has written, and its status."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        status, out, err = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess(words, status, out, err)


@contextmanager
def warm_console(environment: dict[str, str], root: Path) -> Iterator[WarmConsole]:
    """Ready at once: the first command waits until it is warm."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.warm_console"],
        env=environment,
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield WarmConsole(process)


def serve() -> None:
    """A line of words for each command; a line with status and texts is the answer."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
    django.setup()
    # Imports what the checks before each command look at: all routes and views.
    run_checks()
    gc.freeze()
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = os.fork()
            if not child:
                _become(json.loads(line), out, err)
            _, ended = os.waitpid(child, 0)
            for file in (out, err):
                file.seek(0)
            told = os.waitstatus_to_exitcode(ended), out.read(), err.read()
            print(json.dumps(told), flush=True)


def _become(words: Sequence[str], out: IO[str], err: IO[str]) -> None:
    """The real program from here on, to the end of this process."""
    with open(os.devnull) as nothing:
        for number, file in enumerate((nothing, out, err)):
            os.dup2(file.fileno(), number)
    sys.exit(main(words))


if __name__ == "__main__":
    serve()
