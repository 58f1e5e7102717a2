"""What engines count in their steps and nodes tell one gateway, until somebody takes the counts:
tokens guessed, those of them that were right, and sequences that had to give up their blocks.
"""

from typing import NamedTuple


class DraftedTokens(NamedTuple):
    """Tokens drafted for a model, of which `accepted` turned out right; sequences `preempted`."""

    model: str
    drafted: int
    accepted: int
    preempted: int = 0


class DraftCounts:
    """Counts by model since they were last taken; there are as many as models."""

    def __init__(self) -> None:
        self._counts: dict[str, DraftedTokens] = {}

    def add(self, drafts: DraftedTokens) -> None:
        model, drafted, accepted, preempted = drafts
        before = self._counts.get(model, DraftedTokens(model, 0, 0))
        self._counts[model] = DraftedTokens(
            model,
            before.drafted + drafted,
            before.accepted + accepted,
            before.preempted + preempted,
        )

    def take(self) -> list[DraftedTokens]:
        """What has come since the last call; nothing of models without any."""
        taken, self._counts = self._counts, {}
        return list(taken.values())
