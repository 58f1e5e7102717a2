"""What a driver is told of its gateway, and the one line that it prints at its end.

It runs in the client's own environment, where nothing else of this repository can be imported.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import Callable
from typing import Any

SLUICE = os.environ["SLUICE"]
KEY = os.environ["KEY"]
MODEL = os.environ["MODEL"]
EMBEDDER = os.environ["EMBEDDER"]
# The tool that is stored there.
STORED = "weather"
FAULT_CHARS_MAX = 1_000
_acts: list[Callable[[], Any]] = []


def act(work: Callable[[], Any]) -> Callable[[], Any]:
    """One thing that people do with the client; it raises where that does not work."""
    _acts.append(work)
    return work


def report() -> None:
    """Do all of them, in order, and print what became of each: null, or the error."""
    # One loop for all: some clients keep their connections in it.
    with asyncio.Runner() as runner:
        done = {work.__name__: _fault(work, runner) for work in _acts}
    print("\n" + json.dumps(done))


def _fault(work: Callable[[], Any], runner: asyncio.Runner) -> str | None:
    try:
        made = work()
        if inspect.iscoroutine(made):
            runner.run(made)
    except Exception as error:
        cause = f" <- {error.__cause__!r}" if error.__cause__ else ""
        return f"{error!r}{cause}"[:FAULT_CHARS_MAX]
    return None
