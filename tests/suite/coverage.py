"""Line and branch coverage of each package, from what `make test-coverage` has measured.

`python -m tests.suite.coverage FILE`, where FILE is the report of `coverage json`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

COUNTS = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def main(report: Path) -> None:
    """A line for each folder below `controlplane`, `inference` and `frontend`, and their sum."""
    packages: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, file in json.loads(report.read_text())["files"].items():
        counts = {count: file["summary"].get(count, 0) for count in COUNTS}
        for package in (".".join(Path(name).parts[:2]).removesuffix(".py"), "all"):
            packages[package].update(counts)
    print(f"{'':32} lines  branches")
    for package, counts in sorted(packages.items(), key=lambda pair: (pair[0] == "all", pair[0])):
        print(f"{package:32} {_share(counts, 0)}  {_share(counts, 2)}")


def _share(counts: Counter[str], first: int) -> str:
    covered, all_of_them = (counts[name] for name in COUNTS[first : first + 2])
    return f"{covered / all_of_them:6.1%}" if all_of_them else "     -"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
