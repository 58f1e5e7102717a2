"""`make fuzz [SECONDS=60]`: hostile requests and frames on the real product, from a fresh seed.

Prints what it did; the last line is JSON. A case that fails is kept in tests/fuzz/cases, where a
test replays it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import django
from django.utils.module_loading import import_string

SECONDS = 60.0
SEED_BITS = 32


def main() -> int:
    """1 when something was wrong."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int, help="default: a fresh one")
    options = parser.parse_args()
    # However it is interrupted, what it has started ends with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    seed = secrets.randbits(SEED_BITS) if options.seed is None else options.seed
    print(f"fuzz: seed {seed}, {options.seconds:g} s", flush=True)
    with TemporaryDirectory(prefix="sluice-fuzz-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        os.environ["SLUICE_DATA"] = folder
        os.environ["SLUICE_LOG_LEVEL"] = "WARNING"
        os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
        django.setup()
        found = asdict(run(seed, options.seconds))
    print(json.dumps(found))
    return 1 if found["problem"] else 0


def run(seed: int, seconds: float) -> Any:
    """On servers of its own."""
    # Imported late, since these need the applications that are set up by now.
    campaign: Callable[..., Coroutine[Any, Any, Any]] = import_string(
        "tests.fuzz.campaign.campaign"
    )
    running_ground = import_string("tests.fuzz.ground.running_ground")
    servers = import_string("tests.support.servers.start_servers")()
    try:
        with running_ground(servers) as ground:
            return asyncio.run(campaign(ground, seed, seconds))
    finally:
        servers.stop()


if __name__ == "__main__":
    sys.exit(main())
