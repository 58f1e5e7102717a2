"""Ends a test run's servers when the run was killed: `python -m tests.support.watchdog FOLDER`.

The run holds the other end of standard input, which closes with it however it ends. A run that ends
by itself stops its servers, and then this.
"""

import shutil
import signal
import sys
from pathlib import Path

from controlplane.embedded.layout import REDIS_PROGRAMS, embedded_layout
from controlplane.embedded.processes import end_left_overs

STOP_S_MAX = 5.0


def main() -> int:
    """Wait for the end of the run, then leave nothing of its data folder."""
    sys.stdin.buffer.read()
    data = Path(sys.argv[1])
    layout = embedded_layout(data)
    for program in REDIS_PROGRAMS:
        end_left_overs(program, layout.redis, polite=signal.SIGTERM, seconds=STOP_S_MAX)
    end_left_overs("postgres", layout.postgres, polite=signal.SIGINT, seconds=STOP_S_MAX)
    shutil.rmtree(data, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
