"""Fixtures of the browser tests: a running site, Debian's Chromium, and a page that keeps watch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.support.servers import Servers, drop_database, make_database

if TYPE_CHECKING:
    from tests.browser.site import Site
    from tests.browser.watch import Watch

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


# pytest reads this file before Django is set up, so what needs models is imported by name, later.
SITE = "tests.browser.site"
WATCH = "tests.browser.watch"


def _site(servers: Servers, *, with_history: bool) -> Iterator[Site]:
    make_database(servers.postgres)
    parts = import_module(SITE)
    try:
        # Chromium's driver has a loop in this thread, and the past is written in one of its own.
        cast, key, requests, credential = parts.elsewhere(lambda: parts.fill(with_history))
        with tempfile.TemporaryDirectory() as folder:
            processes = parts.Processes(Path(folder), credential)
            try:
                processes.start()
                yield parts.Site(processes.port, cast, key, requests)
            finally:
                processes.stop()
    finally:
        drop_database(servers.postgres)


@pytest.fixture(scope="module")
def site(servers: Servers, request: pytest.FixtureRequest) -> Iterator[Site]:
    """A site with three hours of traffic, or an empty one where a module says `HISTORY = False`."""
    yield from _site(servers, with_history=getattr(request.module, "HISTORY", True))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; the driver's own event loop ends with it, before any other tests."""
    # Django's ORM is used from this thread too, while the driver keeps a loop of its own in it.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def watch(browser: Browser) -> Iterator[Watch]:
    """Opens pages and remembers what went wrong on them; fails the test for it at its end."""
    made = import_module(WATCH).Watch(browser)
    yield made
    made.close()
    assert made.complaints == []
