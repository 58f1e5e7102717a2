"""`make bench-money [N=1000]`: speed, exactness and recovery of the ledger, on a real PostgreSQL.

Without N it kills gateways for as long as ten minutes allow; with it, until so many were killed,
which resumes where the last run of the same code stopped (state in var/money.json).
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import django
from django.utils.module_loading import import_string

from benchmarks.kept import explain
from benchmarks.machine import describe
from benchmarks.recorder import Recorder

KILLS = 1_000
ROUNDS = 100
UNBOUNDED_S_MAX = 420.0
STATE = Path("var/money.json")

Run = Callable[..., dict[str, Any]]


def main() -> int:
    """Print the table and, last, the JSON line; 1 where a nano-USD was wrong."""
    parser = argparse.ArgumentParser(prog="bench-money", description=__doc__)
    parser.add_argument("--kills", type=int, metavar="N", help="of gateways, however long")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="races on a balance for seven")
    parser.add_argument("--state", type=Path, default=STATE, help=f"default: {STATE}")
    parser.add_argument("--explain", metavar="TEXT", help="what the last losses were, and end")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    print(f"bench-money: {describe()}")
    # On a disk, whatever else is in memory: what is measured waits for its flushes.
    with TemporaryDirectory(prefix="sluice-money-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        os.environ["SLUICE_DATA"] = folder
        os.environ["SLUICE_LOG_LEVEL"] = "WARNING"
        os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
        django.setup()
        # Imported late, since it needs the applications that are set up by now.
        if options.explain:
            kind = import_string("benchmarks.money.kills.State")
            print(f"{explain(options.state, kind, options.explain)} losses explained")
            return 0
        kills = options.kills or KILLS
        recorder = Recorder("money", kills=kills, rounds=options.rounds)
        run: Run = import_string("benchmarks.money.all.run")
        left_s = UNBOUNDED_S_MAX if options.kills is None else math.inf
        figures = run(
            recorder,
            kills=kills,
            until_s=time.monotonic() + left_s,
            rounds=options.rounds,
            state=options.state,
        )
    recorder.finish(figures)
    race, killed = figures["race"], figures["kills"]
    wrong = race["overspend_nano_usd"] + race["wrongly_refused"] + race["open_holds"]
    wrong += killed["missing"] + killed["doubled"] + killed["difference_nano_usd"]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
