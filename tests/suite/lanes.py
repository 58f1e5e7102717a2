"""Marks what `make test-fast` runs: tests that start no server, browser or engine of their own.

Which those are is told by the fixtures that a test asks for, by a parameter that says `processes`
of itself, by what its file imports, or by the mark `processes`. Should another start a process in
that lane, it fails. Files that took long when they were last recorded are left out, too.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from functools import cache
from types import ModuleType

import pytest

from tests.suite.durations import Durations, read

LANE = "fast"
SECONDS_MAX = 2.0
# What starts processes, or needs those that another fixture has started.
FIXTURES = frozenset({"servers", "profiles", "vllm_http"})
MODULES = (
    "asyncio.subprocess",
    "controlplane.embedded",
    "multiprocessing",
    "subprocess",
    "tests.support.embedded",
    "tests.support.node_client",
    "tests.support.sluice_run",
    "tests.support.vllm_server",
)
EVENTS = frozenset({"subprocess.Popen", "os.posix_spawn"})
_running: list[pytest.Item] = []


def pytest_configure(config: pytest.Config) -> None:
    """Watch processes where the lane is all that runs."""
    config.addinivalue_line("markers", f"{LANE}: starts no process; never set by hand")
    config.addinivalue_line("markers", "processes: starts processes though nothing else says so")
    if config.getoption("markexpr") == LANE:
        sys.addaudithook(_refuse)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before `-m` chooses."""
    durations = Durations(read())
    for item in items:
        quick = durations.of(item.nodeid.partition("::")[0]) <= SECONDS_MAX
        if quick and not _starts_processes(item):
            item.add_marker(LANE)


def _starts_processes(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    return bool(
        FIXTURES & {*getattr(item, "fixturenames", ())}
        or item.get_closest_marker("processes")
        or parameters
        and any(getattr(each, "processes", None) is True for each in parameters.params.values())
        or _imports_processes(getattr(item, "module", None))
    )


@cache
def _imports_processes(module: ModuleType | None) -> bool:
    for value in vars(module).values() if module else ():
        source = value.__name__ if isinstance(value, ModuleType) else _source(value)
        if any(source == name or source.startswith(f"{name}.") for name in MODULES):
            return True
    return False


def _source(value: object) -> str:
    return str(getattr(value, "__module__", ""))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Which test runs now."""
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.pop()


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if _running and event in EVENTS:
        raise AssertionError(f"{arguments[0]} is started: mark the test `processes`")
