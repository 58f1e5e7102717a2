"""Fixtures of the browser tests: a running site, Debian's Chromium, and a page that keeps watch.

All tests of this folder that follow each other in a process share one Chromium and one site; both
end before a test of another folder begins.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.support.servers import Servers, drop_database, make_database

if TYPE_CHECKING:
    from tests.browser.shared import Kept
    from tests.browser.site import Site
    from tests.browser.watch import Profiles, Watch

CHROMIUM = "/usr/bin/chromium"
# How long a page takes on a busy machine is no defect of it.
expect.set_options(timeout=60_000)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# All pages of a profile in one process.
TOGETHER = "--process-per-site"
FOLDER = Path(__file__).parent


# pytest reads this file before Django is set up, so what needs models is imported by name, later.
SHARED = "tests.browser.shared"
SITE = "tests.browser.site"
WATCH = "tests.browser.watch"
# What is to be closed before a test of another folder.
_kept: list[Kept[str, Site] | Kept[None, Profiles]] = []


@contextmanager
def _site(servers: Servers, past: str) -> Iterator[Site]:
    make_database(servers.postgres)
    parts = import_module(SITE)
    try:
        # Chromium's driver has a loop in this thread, and the past is written in one of its own.
        filled = parts.elsewhere(partial(parts.fill, past))
        with tempfile.TemporaryDirectory() as folder:
            processes = parts.Processes(Path(folder), filled.credential)
            try:
                processes.start()
                yield parts.Site(processes.port, filled, processes.hub_port)
            finally:
                processes.stop()
    finally:
        drop_database(servers.postgres)


@contextmanager
def _profiles(_: None) -> Iterator[Profiles]:
    # Django's ORM is used from this thread too, while the driver keeps a loop of its own in it.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    try:
        with sync_playwright() as driver:
            running = driver.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, TOGETHER])
            yield import_module(WATCH).Profiles(running)
            running.close()
    finally:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(scope="session")
def sites(servers: Servers) -> Iterator[Kept[str, Site]]:
    """One site at a time: there is one database."""
    kept = import_module(SHARED).Kept(partial(_site, servers))
    _kept.append(kept)
    yield kept
    kept.close()


@pytest.fixture(scope="session")
def profiles() -> Iterator[Kept[None, Profiles]]:
    """Debian's Chromium; the driver's own event loop ends with it."""
    kept = import_module(SHARED).Kept(_profiles)
    _kept.append(kept)
    yield kept
    kept.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Close what is shared once a test of another folder follows."""
    try:
        return (yield)
    finally:
        if nextitem is None or FOLDER not in nextitem.path.parents:
            for kept in _kept:
                kept.close()


@pytest.fixture(scope="module")
def site(sites: Kept[str, Site], request: pytest.FixtureRequest) -> Site:
    """The site with a past of three hours that looks used, which its tests share and add to.

    A module that says `PAST = "month"` has one with a month of money in the ledger instead, with
    `"things"` one of each thing that a page can show.
    """
    return sites.of(getattr(request.module, "PAST", "history"))


@pytest.fixture
def watch(profiles: Kept[None, Profiles]) -> Iterator[Watch]:
    """Opens pages and remembers what went wrong on them; fails the test for it at its end."""
    made = import_module(WATCH).Watch(profiles.of(None))
    yield made
    made.close()
    assert made.complaints == []
