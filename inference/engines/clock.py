"""The clock by which engines report."""

import time


def clock_us() -> int:
    return time.monotonic_ns() // 1000
