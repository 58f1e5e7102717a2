"""Memory and speed of exports: a synthetic month on a PostgreSQL of its own, each file in a process
of its own, for a tenth of the month and for all of it. Prints a table; the last line is JSON.

Covers reading, formatting, hashing and writing with the claims and counts of a job; no broker.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import django
import psycopg
from django.conf import settings
from django.core.management import call_command
from django.utils.module_loading import import_string

from benchmarks.machine import describe
from benchmarks.recorder import Recorder
from controlplane.embedded.layout import embedded_layout, prepare
from controlplane.embedded.postgres import Postgres

START, END = datetime(2025, 10, 1, tzinfo=UTC), datetime(2025, 11, 1, tzinfo=UTC)
PART_DAYS = 3
REQUESTS = 1_000_000
SEAL_ROWS = 250_000
FILES = (("detail", "entry"), ("focus", "hour"), ("usage", "hour"), ("journal", "entry"))
MIB = 1 << 20
HEAD = "file             days       rows      MiB       s   rows/s  MiB/s  RSS before  RSS peak"
# A request's hold and its settlement, evenly over the month, by one of 50 keys, for two models.
_FILL = """
    INSERT INTO transfers (request, slot, kind, debit, credit, amount, organization, project, key,
                           model, price_version, input_pico, cached_pico, output_pico, uncached,
                           cached, output, source, budgets, booked_at)
    SELECT (lpad(to_hex((extract(epoch FROM n.at) * 1000)::bigint), 12, '0') || '7'
            || substr(n.random, 1, 3) || '8' || substr(n.random, 4, 15))::uuid,
           s.slot, CASE s.slot WHEN 0 THEN 'hold' ELSE 'settle' END, 'receivable:' || %(tenant)s,
           'revenue:' || n.model, 1 + (n.tokens * 3 * 37500 + n.tokens * 299999) / 1000,
           %(tenant)s::uuid, %(project)s::uuid, (%(keys)s::uuid[])[1 + n.i %% 50], n.model, 1,
           37500, 7501, 299999, CASE s.slot WHEN 0 THEN 0 ELSE n.tokens * 2 END,
           CASE s.slot WHEN 0 THEN 0 ELSE n.tokens END, CASE s.slot WHEN 0 THEN 0 ELSE n.tokens END,
           CASE s.slot WHEN 0 THEN '' ELSE 'gateway' END,
           CASE s.slot WHEN 0 THEN '{}'::uuid[] END, n.at + s.slot * interval '1 second'
    FROM (SELECT i, %(start)s::timestamptz + i * (%(step)s * interval '1 second') AS at,
                 md5(i::text) AS random, 10 + i %% 3989 AS tokens,
                 CASE WHEN i %% 3 = 0 THEN 'beta/chat' ELSE 'alpha-7b' END AS model
          FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS i) AS n,
         (VALUES (0), (1)) AS s(slot)
"""
FILL_STEP = 100_000


def main() -> None:
    """Fill, then write each file twice; with `--write` be the process that writes one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--kinds", nargs="+", default=[kind for kind, _ in FILES])
    parser.add_argument("--write", nargs=4, metavar=("ORGANIZATION", "KIND", "GRAIN", "DAYS"))
    given = parser.parse_args()
    if given.write:
        django.setup()
        organization, kind, grain, days = given.write
        first = START.date()
        write = import_string("benchmarks.exports_inside.write_file")
        days_of = (first, first + timedelta(days=int(days)))
        print(json.dumps(write(uuid.UUID(organization), kind, grain, days_of)))
        return
    recorder = Recorder("exports", requests=given.requests, kinds=given.kinds)
    with _postgres() as postgres:
        filled = _fill(postgres, given.requests)
        print(f"{describe()}\n{given.requests:,} requests booked and sealed in {filled[1]:.0f} s")
        print(HEAD, flush=True)
        results = [
            _measure(filled[0], kind, grain, days)
            for kind, grain in FILES
            if kind in given.kinds
            for days in (PART_DAYS, (END - START).days)
        ]
    recorder.passes = {"files": results}
    recorder.finish({"requests": given.requests, "files": results})


@contextmanager
def _postgres() -> Iterator[Postgres]:
    """Migrated, with fsync on, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        Path(folder).chmod(0o755)
        os.environ["SLUICE_DATA"] = folder
        os.environ["SLUICE_LOG_LEVEL"] = "WARNING"
        os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
        django.setup()
        layout = embedded_layout(settings.DATA_DIR)
        prepare(layout)
        running = Postgres(layout, password=settings.SUPERUSER_PASSWORD, say=lambda note: None)
        running.start()
        try:
            call_command("bootstrap_db", verbosity=0)
            call_command("migrate", verbosity=0)
            yield running
        finally:
            running.stop()


def _fill(postgres: Postgres, requests: int) -> tuple[uuid.UUID, float]:
    """Book and seal the month; returns the organization and the seconds it took."""
    began = time.monotonic()
    make_tenant = import_string("benchmarks.exports_inside.make_tenant")
    organization, project, keys = make_tenant()
    database = settings.DATABASES["default"]["NAME"]
    values = {"tenant": str(organization), "project": project, "keys": keys, "start": START}
    values["step"] = (END - START).total_seconds() / requests
    with psycopg.connect(postgres.superuser_dsn, dbname=database, autocommit=True) as connection:
        days = (START.date() - timedelta(days=1), END.date())
        connection.execute("SELECT ledger_make_partitions(%s, %s)", days)
        for first in range(0, requests, FILL_STEP):
            last = min(first + FILL_STEP, requests) - 1
            connection.execute(_FILL, {**values, "first": first, "last": last})
        connection.execute("ANALYZE transfers")
        now = datetime.now(UTC)
        while connection.execute("SELECT ledger_seal(%s, %s, 8)", [now, SEAL_ROWS]).fetchone() != (
            0,
        ):
            continue
    return organization, time.monotonic() - began


def _measure(organization: uuid.UUID, kind: str, grain: str, days: int) -> dict[str, Any]:
    arguments = ["--write", str(organization), kind, grain, str(days)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.exports", *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    name, mib = f"{found['kind']} by {found['grain']}", found["bytes"] / MIB
    print(
        f"{name:16} {found['days']:4} {found['rows']:10,} {mib:8.1f} {found['s']:7.1f}"
        f" {found['rows'] / found['s']:8,.0f} {mib / found['s']:6.1f}"
        f" {found['rss_before_mib']:11.0f} {found['rss_peak_mib']:9.0f}",
        flush=True,
    )
    return found


if __name__ == "__main__":
    main()
