"""What engines count in their steps and nodes tell one gateway, until somebody takes the counts:
tokens guessed, those of them that were right, and sequences that had to give up their blocks.
"""

from __future__ import annotations

from typing import NamedTuple


class Drafts(NamedTuple):
    """Tokens drafted for a model, of which `accepted` turned out right; sequences `preempted`."""

    model: str
    drafted: int
    accepted: int
    preempted: int = 0


class DraftCounts:
    """Counts by model since they were last taken; there are as many as models."""

    def __init__(self) -> None:
        self._counts: dict[str, Drafts] = {}

    def add(self, drafts: Drafts) -> None:
        """Count those of one step."""
        model, drafted, accepted, preempted = drafts
        before = self._counts.get(model, Drafts(model, 0, 0))
        self._counts[model] = Drafts(
            model,
            before.drafted + drafted,
            before.accepted + accepted,
            before.preempted + preempted,
        )

    def take(self) -> list[Drafts]:
        """What has come since the last call; nothing of models without any."""
        taken, self._counts = self._counts, {}
        return list(taken.values())
