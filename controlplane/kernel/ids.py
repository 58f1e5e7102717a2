"""Request ids: UUIDv7 (RFC 9562), so that ids sort by time and partitions can be cut by id."""

import os
import time

ID_BYTES = 16
_VERSION_7 = 0x7000
_VARIANT = 0x8000_0000_0000_0000


def new_request_id() -> bytes:
    """16 bytes: 48 bits of Unix milliseconds, then 74 random bits around version and variant."""
    random = int.from_bytes(os.urandom(10), "big")
    rand_a = _VERSION_7 | (random >> 68)
    rand_b = _VARIANT | (random & 0x3FFF_FFFF_FFFF_FFFF)
    value = ((time.time_ns() // 1_000_000) << 80) | (rand_a << 64) | rand_b
    return value.to_bytes(ID_BYTES, "big")


def id_time_ms(request: bytes) -> int:
    """Unix milliseconds at which an id was made."""
    return int.from_bytes(request[:6], "big")
