"""Which process of a run gets which test files, and when: the heaviest first.

So none is left with a long file while the others have nothing to do any more.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.suite.durations import ROOT, Durations, read

# One process gets all files of a folder that share something that takes long to start.
TOGETHER = ("tests/browser/", "tests/inference/conformance/", "tests/release/")
# Which of the folder's starts a file needs, where there are several: a browser's site has one past.
KIND = re.compile(r'^PAST = "(\w+)"$', re.MULTILINE)


@cache
def unit_of_file(file: str) -> str:
    """What goes to one process as a whole: a file, or those of a folder that share a start."""
    for folder in TOGETHER:
        if file.startswith(folder):
            kind = KIND.search((ROOT / file).read_text())
            return f"{folder}{kind[1] if kind else ''}"
    return file


def unit_of(nodeid: str) -> str:
    """The unit of a test's file."""
    return unit_of_file(nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Instead of xdist's own order, which is by the number of tests: as they were collected."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = unit_of
    return scheduler


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The heaviest unit first; its tests, and units that take equally long, stay as shuffled."""
    if hasattr(config, "workerinput"):
        durations = Durations(read())
        files = {item.nodeid.partition("::")[0] for item in items}
        seconds: defaultdict[str, float] = defaultdict(float)
        for file in files:
            seconds[unit_of_file(file)] += durations.of(file)
        items.sort(key=lambda item: -seconds[unit_of(item.nodeid)])
