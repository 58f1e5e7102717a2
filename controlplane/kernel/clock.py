"""Clocks: monotonic for durations, wall for records; money uses the database's clock.

Three are the standard library's own functions, since the hot path asks them dozens of times for a
request: `monotonic_ns` and `monotonic_s`, of which only differences mean anything, and `wall_s`,
Unix time in seconds.
"""

import time

MICROSECOND_NS = 1_000

monotonic_ns = time.perf_counter_ns
monotonic_s = time.perf_counter
wall_s = time.time


def wall_us() -> int:
    return time.time_ns() // MICROSECOND_NS
