"""How long this process has run, by the kernel's account: a cold start begins before Python."""

import os
import time
from pathlib import Path

STAT = Path("/proc/self/stat")
# Counted from the parenthesis that closes the command's name, which may hold blanks itself.
START_FIELD = 19


def process_age_s() -> float:
    """Seconds since the process was started; 0 where no such account is kept."""
    try:
        fields = STAT.read_text().rpartition(")")[2].split()
        started_s = int(fields[START_FIELD]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
