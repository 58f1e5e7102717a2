"""Tokens that nodes guessed and those of them that were right, until somebody takes the counts."""

from __future__ import annotations

from typing import NamedTuple


class Drafts(NamedTuple):
    """Tokens drafted for a model, of which `accepted` turned out right."""

    model: str
    drafted: int
    accepted: int


class DraftCounts:
    """Counts by model since they were last taken; there are as many as models that speculate."""

    def __init__(self) -> None:
        self._counts: dict[str, Drafts] = {}

    def add(self, drafts: Drafts) -> None:
        """Count the drafts of one step."""
        model, drafted, accepted = drafts
        before = self._counts.get(model, Drafts(model, 0, 0))
        self._counts[model] = Drafts(model, before.drafted + drafted, before.accepted + accepted)

    def take(self) -> list[Drafts]:
        """What has come since the last call; nothing of models without drafts."""
        taken, self._counts = self._counts, {}
        return list(taken.values())
