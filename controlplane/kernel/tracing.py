"""W3C Trace Context: which trace a request belongs to, whether it is recorded, and how it goes on.

Pure: nothing is sent or kept here. A header that is no valid `traceparent` counts as none.
"""

import re
from hashlib import blake2b

import msgspec

SPAN_BYTES = 8
STATE_CHARS_MAX = 512
STATE_MEMBERS_MAX = 32
_SAMPLED = 1
# Of a trace id, what is random in all versions of the standard, and in our request ids.
_RANDOM_BYTES = 7
_RANDOM_ALL = 1 << 8 * _RANDOM_BYTES
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# A list-member of `tracestate`: whose it is, and what that system wrote.
_MEMBER = re.compile(
    r"(?P<key>[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)


class Trace(msgspec.Struct, frozen=True):
    """One request's place in a trace: ids as bytes, `parent` empty where it begins here.

    `sampled`: whoever takes part sends spans. `state` is the caller's `tracestate`, passed on
    unchanged. Where traces are off, `is_ours` is False and `span` the caller's.
    """

    trace: bytes
    span: bytes
    parent: bytes
    sampled: bool
    state: str = ""
    is_ours: bool = True

    @property
    def is_recorded(self) -> bool:
        """Whether spans of ours are to be sent."""
        return self.sampled and self.is_ours

    def header(self, span: bytes) -> str:
        """The `traceparent` of a call that one of our spans makes."""
        return f"00-{self.trace.hex()}-{span.hex()}-{int(self.sampled):02x}"


class Caller(msgspec.Struct, frozen=True):
    """What a `traceparent` says."""

    trace: bytes
    span: bytes
    sampled: bool


def read_parent(header: str) -> Caller | None:
    """None where it is no `traceparent` of any version."""
    found = _PARENT.fullmatch(header.strip())
    if found is None:
        return None
    version, trace, span, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest is not None):
        return None
    if not int(trace, 16) or not int(span, 16):
        return None
    sampled = bool(int(flags, 16) & _SAMPLED)
    return Caller(bytes.fromhex(trace), bytes.fromhex(span), sampled)


def read_state(header: str | None) -> str:
    """A `tracestate` that may be passed on; empty where it is none, or longer than we carry.

    The standard has what cannot be read dropped as a whole, without a word: it is someone else's.
    """
    state = (header or "").strip()
    if not state or len(state) > STATE_CHARS_MAX:
        return ""
    members = [member.strip(" \t") for member in state.split(",")]
    read = [_MEMBER.fullmatch(member) for member in members if member]
    keys = {found["key"] for found in read if found is not None}
    return state if 0 < len(read) == len(keys) <= STATE_MEMBERS_MAX else ""


def begins_sampled(trace: bytes, ratio: float) -> bool:
    """Whether a trace that begins here is recorded: the same answer for one id everywhere."""
    drawn = int.from_bytes(trace[-_RANDOM_BYTES:], "big")
    return drawn < ratio * _RANDOM_ALL


def child_span(span: bytes, place: int) -> bytes:
    """The id of one of a request's spans, by its place in their table: it need not be kept."""
    return blake2b(span + place.to_bytes(2, "big"), digest_size=SPAN_BYTES).digest()
