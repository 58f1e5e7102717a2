"""Every part of `bench-money`, one after the other, on one pair of servers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from benchmarks.money.kills import State, campaign
from benchmarks.money.race import races
from benchmarks.money.speed import describe_disk, on_slow_disk, recovery, speeds
from benchmarks.recorder import Recorder
from tests.support.product import fresh_data
from tests.support.servers import start_servers

SETTINGS = {"max_connections": "200"}
TABLE = (
    ("hold_settle_per_s", "held and settled per second, 500 organizations", "2,000, aim 10,000"),
    ("hot_row_per_s", "the same, one organization's rows", "1,000, aim 10,000"),
    ("open_4000_p99_ms", "p99 of hold or settle at 4,000 arrivals/s, ms", "aim 20"),
    ("gateway_cpu_ms", "gateway CPU per request at 1,000/s, ms", "0.25, aim 0.15"),
    ("generator_cpu_ms", "  control: the load generator alone", ""),
    ("postgres_cpu_ms", "PostgreSQL CPU per request at 1,000/s, ms", "aim 0.5"),
    ("hold_p50_ms_c1", "hold p50, one client, ms", "aim 1"),
    ("settle_p50_ms_c1", "settle p50, one client, ms", "aim 1.5"),
    ("hot_hold_p50_ms_fsync_plus_5ms", "hold p50, one organization, flush + 5 ms", "aim 5"),
    ("recovery_after_kill_s", "PostgreSQL killed: first hold after it accepts, s", "aim 0.5"),
)


def run(
    recorder: Recorder, *, kills: int, until_s: float, rounds: int, state: Path
) -> dict[str, Any]:
    """The figures of the last line; prints the table on the way."""
    servers = start_servers(SETTINGS)
    try:
        with fresh_data(servers):
            found = speeds(recorder) | on_slow_disk(recorder)
            found |= asyncio.run(recovery(recorder, servers.postgres))
            found["log_on"] = describe_disk(str(servers.layout.data))
        print(f"{'':52}{'measured':>12}  wanted   (log on {found['log_on']})")
        for key, name, wanted in TABLE:
            print(f"{name:52}{found[key]:12,}  {wanted}")
        with fresh_data(servers):
            found["race"] = races(rounds, servers.redis)
        print(f"races for seven: {found['race']}")
        killed = campaign(servers, kills, until_s, state)
        show(killed)
    finally:
        servers.stop()
    found["kills"] = {
        "tried": killed.tried,
        "answers": killed.answers,
        "missing": killed.missing,
        "doubled": killed.doubled,
        "expired": killed.expired,
        "difference_nano_usd": killed.difference_nano_usd,
        "points": killed.points,
        "losses": killed.told(),
        "aimed_at": kills,
    }
    return found


def show(killed: State) -> None:
    """Where gateways were killed."""
    print(f"\n{'gateway killed':20}{'times':>8}")
    for point, times in sorted(killed.points.items()):
        print(f"{point:20}{times:8}")
