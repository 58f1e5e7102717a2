"""`make bench-faults [N=200]`: faults of every kind on the real product, counted and checked.

Without N it aims at 200 of each kind and stops after ten minutes. It can be interrupted: the state
file keeps what was counted, and the next run of the same code goes on from there with the seed's
next numbers. What a loss was is said by `--explain`.
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

FAULTS = 200
UNBOUNDED_S_MAX = 480.0
STATE = Path("var/faults.json")

Campaign = Callable[[Recorder, int, float, Path], dict[str, Any]]


def main() -> int:
    """Print the table and, last, the JSON line; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="bench-faults", description=__doc__)
    parser.add_argument("--faults", type=int, metavar="N", help="of each kind, however long")
    parser.add_argument("--state", type=Path, default=STATE, help=f"default: {STATE}")
    parser.add_argument("--explain", metavar="TEXT", help="what the last losses were, and end")
    options = parser.parse_args()
    # However it is interrupted, what it has started ends with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    print(f"bench-faults: {describe()}")
    with TemporaryDirectory(prefix="sluice-faults-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        os.environ["SLUICE_DATA"] = folder
        os.environ["SLUICE_LOG_LEVEL"] = "WARNING"
        os.environ["SLUICE_NODE_HEADER"] = "true"
        os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
        django.setup()
        # Imported late, since it needs the applications that are set up by now.
        if options.explain:
            kind = import_string("benchmarks.faults.campaign.State")
            print(f"{explain(options.state, kind, options.explain)} losses explained")
            return 0
        recorder = Recorder("faults", aimed_at=options.faults or FAULTS)
        run: Campaign = import_string("benchmarks.faults.campaign.run")
        left_s = UNBOUNDED_S_MAX if options.faults is None else math.inf
        figures = run(recorder, options.faults or FAULTS, time.monotonic() + left_s, options.state)
    recorder.finish(figures)
    return 0 if figures["clean"] else 1


if __name__ == "__main__":
    sys.exit(main())
