"""`python -m tests.recorded`: play all requests and keep what comes of them, as the reference.

With `--compare` nothing is written: it prints what differs from what is kept, and fails if
anything does. `--only TEXT` plays the cases whose name or kind has the text in it, compared; what
others would have cached or spent before them is missing then.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import django
from django.utils.module_loading import import_string


def main() -> int:
    """1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.recorded", description=__doc__)
    parser.add_argument("--compare", action="store_true", help="write nothing")
    parser.add_argument("--only", default="", metavar="TEXT", help="some cases, compared")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="sluice-recorded-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        os.environ["SLUICE_DATA"] = folder
        os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
        django.setup()
        return run(only=options.only, compare=options.compare or bool(options.only))


def run(*, only: str, compare: bool) -> int:
    """On servers of its own."""
    # Imported late, since these need the applications that are set up by now.
    every_case: Any = import_string("tests.recorded.cases.everything.every_case")
    play: Any = import_string("tests.recorded.play.play")
    kept: Any = import_module("tests.recorded.kept")
    cases = [case for case in every_case() if only in case.name or only in case.kind]
    servers = import_string("tests.support.servers.start_servers")()
    began_s = time.monotonic()
    try:
        records = play(servers, cases)
    finally:
        servers.stop()
    print(f"{len(cases)} cases in {time.monotonic() - began_s:.1f} s")
    if not compare:
        for kind, count in Counter(case.kind for case in cases).most_common():
            print(f"{count:5}  {kind}")
        print(f"kept as {kept.keep(records)} characters")
        return 0
    found = kept.differences(records)
    if only:
        names = {case.name for case in cases}
        found = [each for each in found if any(name in each for name in names)]
    print(kept.report(found) if found else "all is as it is kept")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
