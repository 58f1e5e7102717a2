"""Pages over the synthetic past: CPU of the web process, and how soon Chromium can be used.

A page's CPU is the web process' own, the median of single requests, for which pages take turns.
PostgreSQL's share, and how long the page took to answer, are shown beside it.
"""

from __future__ import annotations

import contextlib
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import psutil
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, sync_playwright

from benchmarks.machine import cpu_s
from benchmarks.recorder import Recorder, spread
from benchmarks.stack import free_port, listening, process, wait_for
from benchmarks.telemetry.crowd import write_crowd
from benchmarks.telemetry.past import write_past
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.support.money import rows
from tests.support.people import demo_admin

PAGES = ("/", "/latency", "/cache", "/spend", "/slos", "/insights", "/insights/stages")
RANGES = ("30d", "1h")
# Lists of many rows: of requests all and a part, of nodes, keys and audit. Each is asked less
# often, since some of them read until their bound.
LISTS = {
    "requests_1h": "/requests?range=1h",
    "requests_30d": "/requests?range=30d",
    "requests_30d_failed": "/requests?range=30d&status=failed",
    "requests_24h_slowest": "/requests?range=24h&sort=slow",
    "explore_24h": "/explore?range=24h",
    "fleet": "/fleet",
    "keys": "/keys",
    "audit": "/audit",
    "audit_installation": "/audit/installation",
}
WARM, ASKED, ASKED_LISTS = 3, 25, 9
OPENED = 5
MS = 1_000
# Set once the page's own scripts run, and once every chart is drawn.
DRAWN = (
    "() => { const all = [...document.querySelectorAll('[id^=plot-]')];"
    " return all.length > 0 && all.every((one) =>"
    " one.querySelector('.main-svg') || one.innerText.startsWith('No data')); }"
)
USABLE = (
    "() => { const at = performance.getEntriesByType('navigation')[0];"
    " const paint = performance.getEntriesByName('first-contentful-paint')[0];"
    " return Math.max(at.domContentLoadedEventEnd, paint ? paint.startTime : Infinity); }"
)


def run(recorder: Recorder, crowd: Mapping[str, int]) -> dict[str, Any]:
    """All figures of pages; `crowd` says how many requests and entries of audit there are to be."""
    (organization, project), *_ = rows("SELECT organization_id, id FROM projects ORDER BY id")
    made = write_crowd(organization, project, **crowd)
    began = time.monotonic()
    written = write_past(organization, project)
    print(f"past: {written:,} rows of roll-ups, written in {time.monotonic() - began:.0f} s")
    client = demo_admin()
    cookie = f"{settings.SESSION_COOKIE_NAME}={_session(client)}"
    with _web() as (port, pid):
        measured = {span: _pages(recorder, (port, pid), cookie, span) for span in RANGES}
        lists = _asked(recorder, (port, pid), cookie, LISTS, ASKED_LISTS)
        browser = _browser(recorder, port, _session(client))
    figures: dict[str, Any] = {"requests_in_past": 100_000_000, "rows_in_past": written}
    for span, pages in measured.items():
        known = {path: ms for path, ms in pages.items() if ms is not None}
        slowest = max(known, key=lambda path: known[path])
        passes = recorder.passes[f"{slowest} over {span}"]
        figures |= spread(f"page_{span}_cpu_ms", [row["cpu_ms"] for row in passes], 1)
        figures |= spread(f"page_{span}_postgres_ms", [row["postgres_ms"] for row in passes], 1)
        figures[f"page_{span}_slowest"] = slowest
        figures[f"pages_{span}_cpu_ms"] = pages
    return {**figures, "rows": made, "lists": lists, **browser}


def _session(client: Client) -> str:
    return str(client.cookies[settings.SESSION_COOKIE_NAME].value)


@contextmanager
def _web() -> Iterator[tuple[int, int]]:
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks.serve", "controlplane.asgi:application", str(port)]
    with process(argv, SLUICE_ROLE="web") as pid:
        wait_for(lambda: listening(port), "the web process to listen")
        yield port, pid


def _pages(
    recorder: Recorder, web: tuple[int, int], cookie: str, span: str
) -> dict[str, float | None]:
    """CPU milliseconds by page; None where the page does not answer."""
    named = {f"{path} over {span}": f"{path}?range={span}" for path in PAGES}
    found = _asked(recorder, web, cookie, named, ASKED)
    cpu = {path: found[f"{path} over {span}"] for path in PAGES}
    return {path: row["cpu_ms"] if row else None for path, row in cpu.items()}


def _asked(
    recorder: Recorder, web: tuple[int, int], cookie: str, pages: Mapping[str, str], times: int
) -> dict[str, dict[str, Any] | None]:
    """Medians of single requests by the pages' names; None where one does not answer."""
    port, pid = web
    urls = {name: f"http://127.0.0.1:{port}{path}" for name, path in pages.items()}
    there = {name: url for name, url in urls.items() if _get(url, cookie) == 200}
    for url in there.values():
        for _ in range(WARM):
            _get(url, cookie)
    for _ in range(times):
        for name, url in there.items():
            recorder.keep(name, _once(pid, url, cookie))
    found = {name: recorder.medians(name, 1) if name in there else None for name in pages}
    print(f"\n{'page':28} {'web CPU ms':>11} {'PostgreSQL ms':>14} {'answered in ms':>15}")
    for name, row in found.items():
        told = ("cpu_ms", "postgres_ms", "answered_ms")
        figures = [row[key] for key in told] if row else ["no answer", "", ""]
        print(f"{name:28} {figures[0]:>11} {figures[1]:>14} {figures[2]:>15}")
    return found


def _once(pid: int, url: str, cookie: str) -> dict[str, float]:
    """Milliseconds of CPU of both, and of waiting, for one request."""
    before, theirs, began = cpu_s(pid), postgres_cpu_s(), time.monotonic()
    _get(url, cookie)
    waited = time.monotonic() - began
    return {
        "cpu_ms": (cpu_s(pid) - before) * MS,
        "postgres_ms": (postgres_cpu_s() - theirs) * MS,
        "answered_ms": waited * MS,
    }


def postgres_cpu_s() -> float:
    """User and system time of the server and its backends so far, ended ones in ticks."""
    server = psutil.Process(_postmaster())
    ended = server.cpu_times()
    total: float = cpu_s(server.pid) + ended.children_user + ended.children_system
    for backend in server.children():
        with contextlib.suppress(OSError):
            total += cpu_s(backend.pid)
    return total


@cache
def _postmaster() -> int:
    (pid,) = rows("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")[0]
    server = psutil.Process(pid).parent()
    assert server is not None
    return int(server.pid)


def _get(url: str, cookie: str) -> int:
    asked = urllib.request.Request(url, headers={"cookie": cookie})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _browser(recorder: Recorder, port: int, session: str) -> dict[str, Any]:
    """Seconds from the start of navigation, on the Overview over 30 days; medians."""
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for _ in range(OPENED):
            seen = _open(chromium, f"http://127.0.0.1:{port}", session)
            names = ("interactive_s", "charts_first_s", "charts_repeat_s")
            recorder.keep("browser", dict(zip(names, seen, strict=True)))
        chromium.close()
    return recorder.medians("browser")


def _open(chromium: Browser, origin: str, session: str) -> tuple[float, float, float]:
    """A fresh profile: usable after, charts drawn after, and drawn the second time."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": origin}])
    page = context.new_page()
    drawn = []
    usable = 0.0
    for _ in range(2):
        page.goto(f"{origin}/?range=30d", wait_until="commit")
        page.wait_for_function(DRAWN, timeout=30_000)
        drawn.append(float(page.evaluate("() => performance.now()")) / MS)
        usable = usable or float(page.evaluate(USABLE)) / MS
    context.close()
    return usable, drawn[0], drawn[1]
