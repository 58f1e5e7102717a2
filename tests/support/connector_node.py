"""Stands in for the node behind `manage.py connector`: writes what it is fed into a file.

Ends with status 3 as soon as a line has the word that it was told to die at.
"""

import os
import sys
from pathlib import Path


def main() -> int:
    """Copy standard input, line by line, until it is closed."""
    told, word = Path(os.environ["CONNECTOR_TOLD"]), os.environ.get("CONNECTOR_DIES_AT", "\0")
    with told.open("a") as out:
        print(os.environ.get("SLUICE_NODE_CREDENTIAL", ""), *sys.argv[1:], file=out, flush=True)
        for line in sys.stdin:
            out.write(line)
            out.flush()
            if word in line:
                return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
