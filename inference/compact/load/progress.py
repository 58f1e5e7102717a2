"""How far the weights are read, as log lines at bounded intervals: large models take minutes."""

import logging
import time
from collections.abc import Callable

from inference.compact.options import MEBIBYTE

INTERVAL_S = 2.0

log = logging.getLogger(__name__)


class ReadingProgress:
    """Counts bytes that were read of `total_bytes`; silent while all goes quickly."""

    def __init__(self, total_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total_bytes = total_bytes
        self._read_bytes = 0
        self._clock = clock
        self._said_s = clock()

    def add(self, read_bytes: int) -> None:
        self._read_bytes += read_bytes
        now = self._clock()
        if now - self._said_s >= INTERVAL_S:
            self._said_s = now
            read, total = self._read_bytes // MEBIBYTE, self._total_bytes // MEBIBYTE
            log.info("reading weights %d/%d MiB", read, total)
