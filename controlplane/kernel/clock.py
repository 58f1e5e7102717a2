"""Clocks: monotonic for durations, wall for records; money uses the database's clock."""

import time

MICROSECOND_NS = 1_000


def monotonic_ns() -> int:
    """Nanoseconds of a clock that never steps; only differences mean anything."""
    return time.perf_counter_ns()


def monotonic_s() -> float:
    return time.perf_counter()


def wall_s() -> float:
    """Unix time in seconds."""
    return time.time()


def wall_us() -> int:
    """Unix time in microseconds."""
    return time.time_ns() // MICROSECOND_NS
