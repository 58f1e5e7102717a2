"""What a long campaign has counted, in a file that its next run goes on from.

It belongs to one code: of another commit, or with other changes, the counting begins anew. A loss
that was counted once stays in file and last line, with its explanation once there is one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benchmarks.recorder import code_now


class Loss(msgspec.Struct, kw_only=True):
    """So many of something that must not be, with what was told of it."""

    code: str
    what: str
    count: int
    told: list[str]
    explanation: str = ""


class Kept(msgspec.Struct, kw_only=True):
    """Base of what a campaign keeps."""

    code: str = ""
    losses: list[Loss] = msgspec.field(default_factory=list)

    def lose(self, what: str, count: int, told: list[str]) -> None:
        """Keep a loss; none where nothing was lost."""
        if count:
            self.losses.append(Loss(code=self.code, what=what, count=count, told=told))

    def told(self) -> list[dict[str, Any]]:
        """The losses for the last line."""
        return [msgspec.structs.asdict(loss) for loss in self.losses]


K = TypeVar("K", bound=Kept)


def load(path: Path, kind: type[K]) -> K:
    """What earlier runs of this code have counted, and the losses of all."""
    code = code_now()
    if not path.exists():
        return kind(code=code)
    found = msgspec.json.decode(path.read_bytes(), type=kind)
    if found.code == code:
        return found
    print(f"{path} was counted by {found.code or 'an unknown commit'}: {code} begins anew")
    return kind(code=code, losses=found.losses)


def save(state: Kept, path: Path) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(state))
    os.replace(fresh, path)


def explain(path: Path, kind: type[K], text: str) -> int:
    """Say of every loss that has no explanation yet what it was; returns how many those are."""
    state = msgspec.json.decode(path.read_bytes(), type=kind)
    bare = [loss for loss in state.losses if not loss.explanation]
    for loss in bare:
        loss.explanation = text
    save(state, path)
    return len(bare)
