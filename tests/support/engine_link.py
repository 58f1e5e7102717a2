"""What an engine in a child process and its stand-in in the test say to each other.

Messages travel over a socket pair, each behind its length. The frames are those of the node link.
"""

from __future__ import annotations

import msgspec

from inference.contract.frames import Cancel, Frame, Job, KvEvents, KvSnapshotRequest, Step
from inference.engines.base import EngineFacts

LENGTH_BYTES = 4


class Ready(Frame, tag="ready", frozen=True):
    """The engine has loaded."""

    facts: EngineFacts


class Taken(Frame, tag="taken", frozen=True):
    """The answer to a job or a cancel; `code` None when the engine has it."""

    code: str | None
    message: str


class Refused(Frame, tag="refused", frozen=True):
    """`on_refused`."""

    request: bytes
    code: str
    message: str


class Died(Frame, tag="died", frozen=True):
    """`on_death`."""

    message: str


ToChild = Job | Cancel | KvSnapshotRequest
FromChild = Ready | Taken | Refused | Died | Step | KvEvents
to_child: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)
from_child: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)


def packed(message: ToChild | FromChild) -> bytes:
    """The message behind its length."""
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data
