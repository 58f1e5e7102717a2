"""`make bench-soak [MINUTES=10]`: mixed traffic while every process in turn is killed, frozen and
restarted; then every answer is compared with its bill, and memory and descriptors with before.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import django
from django.utils.module_loading import import_string

from benchmarks.machine import describe
from benchmarks.recorder import Recorder

MINUTES = 10.0
SEED_BITS = 32
SETTINGS = {"max_connections": "200"}


class Run(Protocol):
    """`benchmarks.soak.campaign.soak`."""

    def __call__(self, servers: Any, seconds: float, seed: int) -> dict[str, Any]:
        """The figures of the last line."""


def main() -> int:
    """Print the faults and, last, the JSON line; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="bench-soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--seed", type=int, help="default: a fresh one")
    options = parser.parse_args()
    seed = secrets.randbits(SEED_BITS) if options.seed is None else options.seed
    # However it is interrupted, what it has started ends with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    print(f"bench-soak: {describe()}")
    recorder = Recorder("soak", minutes=options.minutes, seed=seed)
    with TemporaryDirectory(prefix="sluice-soak-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        os.environ["SLUICE_DATA"] = folder
        os.environ["SLUICE_LOG_LEVEL"] = "WARNING"
        os.environ["SLUICE_NODE_HEADER"] = "true"
        os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
        django.setup()
        # Imported late, since it needs the applications that are set up by now.
        run: Run = import_string("benchmarks.soak.campaign.soak")
        servers = import_string("tests.support.servers.start_servers")(SETTINGS)
        try:
            figures = run(servers, options.minutes * 60, seed)
            recorder.passes["faults"] = figures.pop("each_fault")
        finally:
            servers.stop()
    recorder.finish(figures)
    return 0 if figures["clean"] else 1


if __name__ == "__main__":
    sys.exit(main())
