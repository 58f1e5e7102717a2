"""A case: what is sent at one door of the product. Files of failing ones are replayed by a test."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import msgspec

FOLDER = Path(__file__).parent / "cases"
# Stand for what differs from one product to the next.
KEY = b"@KEY@"
JOB = b"@ID-OF-THE-JOB-@"

Door = Literal["v1", "fleet"]


class Case(msgspec.Struct, kw_only=True):
    """`messages` are HTTP requests, each on a connection of its own, or the frames of one link.

    Requests are written as Latin-1 text, frames in hex. `found` says what went wrong.
    """

    door: Door
    messages: list[str]
    found: str = ""

    @classmethod
    def of(cls, door: Door, messages: list[bytes]) -> Case:
        """A case of these bytes."""
        texts = [data.decode("latin-1") if door == "v1" else data.hex() for data in messages]
        return cls(door=door, messages=texts)

    @property
    def data(self) -> list[bytes]:
        """The bytes to send."""
        if self.door == "v1":
            return [text.encode("latin-1") for text in self.messages]
        return [bytes.fromhex(text) for text in self.messages]


def load(path: Path) -> list[Case]:
    """The cases of a file, to be played one after another."""
    return msgspec.json.decode(path.read_bytes(), type=list[Case])


def keep(cases: list[Case], folder: Path = FOLDER) -> Path:
    """Write them to a file of their own, named after their content."""
    text = msgspec.json.format(msgspec.json.encode(cases), indent=1)
    digest = hashlib.sha256(text).hexdigest()[:12]
    path = folder / f"{cases[-1].door}-{digest}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text + b"\n")
    return path
