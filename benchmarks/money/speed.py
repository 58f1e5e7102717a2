"""How fast money is held and settled, on a PostgreSQL that waits for its disk."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import msgspec
import psutil
import psycopg

from benchmarks.load import percentile
from benchmarks.money.client import Figures, Orders, make_hold
from benchmarks.recorder import Recorder
from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.embedded.postgres import Postgres
from controlplane.gateway.ports import LedgerAway
from tests.support.money import dsn, rows, superuser_dsn

SECONDS = 5.0
GATEWAYS = 2
CLIENTS = 128
ORGANIZATIONS, KEYS_EACH = 500, 10
HOT_KEYS = 200
LIMIT_NANO = 10**17
# More than any machine here answers while it is measured.
ANSWER_S_MAX = 60.0
KILLS = 5
SLOW_FLUSH_US = 5_000
AGAIN_S = 0.01
LOOK_S = 0.002
PASSES = 3

Payers = list[tuple[str, str, str]]


class Side:
    """What all processes of a run have counted."""

    def __init__(self, figures: Sequence[Figures], postgres_s: float, seconds: float) -> None:
        self.requests = sum(each.requests for each in figures)
        self.errors = sum(each.errors for each in figures)
        self.cpu_s = sum(each.cpu_s for each in figures)
        self.postgres_s = postgres_s
        self.seconds = seconds
        self.hold_s = [value for each in figures for value in each.hold_s]
        self.settle_s = [value for each in figures for value in each.settle_s]

    @property
    def per_s(self) -> float:
        """Requests held and settled in a second."""
        return self.requests / self.seconds

    def cpu_ms(self, generator: Side | None = None) -> float:
        """Of the gateways' processes per request, less what the generator alone takes."""
        own = generator.cpu_s / max(1, generator.requests) if generator else 0.0
        return (self.cpu_s / max(1, self.requests) - own) * 1e3

    @property
    def postgres_ms(self) -> float:
        """Of all of PostgreSQL's processes per request."""
        return self.postgres_s / max(1, self.requests) * 1e3


def make_payers(organizations: int, keys: int) -> Payers:
    """Organizations with a project and keys, all with budgets that no run can use up."""
    payers: Payers = []
    budgets: list[tuple[uuid.UUID, uuid.UUID, str]] = []
    for _ in range(organizations):
        organization, project = uuid.uuid4(), uuid.uuid4()
        budgets += [
            (organization, organization, "organization"),
            (project, organization, "project"),
        ]
        for _ in range(keys):
            key = uuid.uuid4()
            budgets.append((key, organization, "key"))
            payers.append((organization.hex, project.hex, key.hex))
    with psycopg.connect(superuser_dsn()) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO budgets (id, organization, scope, lim) VALUES (%s, %s, %s, %s)",
            [(*each, LIMIT_NANO) for each in budgets],
        )
    return payers


def _tell(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


def measure(
    payers: Payers,
    *,
    gateways: int = GATEWAYS,
    clients: int = 0,
    per_s: float = 0.0,
    asks: bool = True,
    seconds: float = SECONDS,
) -> Side:
    """One run of so many gateway processes, which share clients or arrivals."""
    argv = [sys.executable, "-m", "benchmarks.money.client"]
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(gateways)
        ]
        for seed, child in enumerate(children):
            orders = Orders(
                dsn=dsn() if asks else "",
                seconds=seconds,
                clients=clients // gateways,
                per_s=per_s / gateways,
                payers=payers,
                seed=seed,
            )
            _tell(child, msgspec.json.encode(orders).decode())
        for child in children:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
        before_s = postgres_cpu_s()
        for child in children:
            _tell(child, "go")
        time.sleep(seconds)
        used_s = postgres_cpu_s() - before_s
        told = [child.communicate(timeout=ANSWER_S_MAX)[0] for child in children]
    figures = [msgspec.json.decode(text, type=Figures) for text in told]
    return Side(figures, used_s, seconds)


def postgres_cpu_s() -> float:
    """User and system time of the server and its backends so far."""
    (pid,) = rows("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")[0]
    server = psutil.Process(pid).parent()
    assert server is not None
    total = 0.0
    for process in (server, *server.children()):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def p_ms(values: Sequence[float], q: float) -> float:
    """A percentile of seconds, in milliseconds."""
    return round(percentile(list(values), q) * 1e3, 2)


def speeds(recorder: Recorder) -> dict[str, Any]:
    """All runs but those on a slow disk, in turns: medians of the passes."""
    many, hot = make_payers(ORGANIZATIONS, KEYS_EACH), make_payers(1, HOT_KEYS)
    measure(many, clients=CLIENTS, seconds=2.0)
    for _ in range(PASSES):
        recorder.keep("speeds", _speeds(many, hot))
    errors = sum(row["errors"] for row in recorder.passes["speeds"])
    return {**recorder.medians("speeds"), "errors": errors}


def _speeds(many: Payers, hot: Payers) -> dict[str, float]:
    wide = measure(many, clients=CLIENTS * GATEWAYS)
    narrow = measure(hot, clients=CLIENTS * GATEWAYS)
    arrivals = measure(many, per_s=4_000.0)
    steady, alone = measure(many, per_s=1_000.0), measure(many, per_s=1_000.0, asks=False)
    single = measure(many, gateways=1, clients=1)
    return {
        "hold_settle_per_s": wide.per_s,
        "hot_row_per_s": narrow.per_s,
        "open_4000_p99_ms": max(p_ms(arrivals.hold_s, 0.99), p_ms(arrivals.settle_s, 0.99)),
        "open_4000_per_s": arrivals.per_s,
        "gateway_cpu_ms": steady.cpu_ms(alone),
        "generator_cpu_ms": alone.cpu_ms(),
        "postgres_cpu_ms": steady.postgres_ms,
        "saturated_gateway_cpu_ms": wide.cpu_ms(),
        "saturated_postgres_cpu_ms": wide.postgres_ms,
        "hold_p50_ms_c1": p_ms(single.hold_s, 0.5),
        "settle_p50_ms_c1": p_ms(single.settle_s, 0.5),
        "errors": sum(side.errors for side in (wide, narrow, arrivals, steady, single)),
    }


def on_slow_disk(recorder: Recorder) -> dict[str, Any]:
    """Holds on one organization's rows while each flush of the log takes 5 ms longer.

    PostgreSQL sleeps for `commit_delay` just before it flushes, with the log's lock held.
    """
    hot = make_payers(1, HOT_KEYS)
    _set(commit_delay=SLOW_FLUSH_US, commit_siblings=0)
    try:
        measure(hot, gateways=4, per_s=1_000.0, seconds=1.0)
        for _ in range(PASSES):
            side = measure(hot, gateways=4, per_s=2_000.0)
            recorder.keep("slow disk", {
                "hot_hold_p50_ms_fsync_plus_5ms": p_ms(side.hold_s, 0.5),
                "hot_settle_p50_ms_fsync_plus_5ms": p_ms(side.settle_s, 0.5),
            })  # fmt: skip
    finally:
        _set(commit_delay=0, commit_siblings=5)
    return recorder.medians("slow disk", 2)


def _set(**values: int) -> None:
    for name, value in values.items():
        rows(f"ALTER SYSTEM SET {name} = {value}")
    rows("SELECT pg_reload_conf()")


async def recovery(recorder: Recorder, postgres: Postgres) -> dict[str, Any]:
    """Seconds from the moment that a killed PostgreSQL takes connections to the first hold.

    That moment is seen by somebody who tries to connect every few milliseconds, all the time.
    """
    (payer,) = make_payers(1, 1)
    ledger = PostgresLedger(dsn())
    ledger.start()
    try:
        await _first_hold(ledger, payer)
        for _ in range(KILLS):
            postgres.kill()
            asked = asyncio.create_task(_first_hold(ledger, payer))
            seen = asyncio.create_task(asyncio.to_thread(_accepted_s))
            await asyncio.to_thread(postgres.start)
            recorder.keep("recovery", {"recovery_after_kill_s": await asked - await seen})
    finally:
        await ledger.close()
    return recorder.medians("recovery")


def _accepted_s() -> float:
    """When the server first took a connection."""
    while True:
        with suppress(psycopg.OperationalError), psycopg.connect(dsn()):
            return time.perf_counter()
        time.sleep(LOOK_S)


async def _first_hold(ledger: PostgresLedger, payer: tuple[str, str, str]) -> float:
    """When it was admitted."""
    async with asyncio.timeout(ANSWER_S_MAX):
        while True:
            with suppress(LedgerAway):
                hold = make_hold(payer)
                await ledger.hold(hold)
                ledger.release(hold)
                return time.perf_counter()
            await asyncio.sleep(AGAIN_S)


def describe_disk(folder: str) -> str:
    """Where the log is flushed to: a memory file system would flatter every figure."""
    best = max(
        (part for part in psutil.disk_partitions(all=True) if folder.startswith(part.mountpoint)),
        key=lambda part: len(part.mountpoint),
    )
    return f"{best.fstype} on {os.path.basename(best.device) or best.device}"
