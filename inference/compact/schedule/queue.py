"""Sequences that wait to be admitted. No torch, no clock."""

from bisect import insort

from inference.compact.schedule.request import Request, Sequence


class WaitingQueue:
    """Highest priority first, then oldest first; a preempted sequence comes back to its place."""

    def __init__(self) -> None:
        self.sequences: list[Sequence] = []
        self.tokens = 0

    def __len__(self) -> int:
        return len(self.sequences)

    def push(self, sequence: Sequence) -> None:
        """Add a sequence; `sequence.uncached_tokens` is what it will probably have to compute."""
        insort(self.sequences, sequence, key=_place)
        self.tokens += sequence.uncached_tokens

    def peek(self) -> Sequence:
        return self.sequences[0]

    def take(self, sequence: Sequence) -> None:
        self.sequences.remove(sequence)
        self.tokens -= sequence.uncached_tokens

    def remove(self, request: Request) -> None:
        self.sequences = [each for each in self.sequences if each.request is not request]
        self.tokens = sum(each.uncached_tokens for each in self.sequences)


def _place(sequence: Sequence) -> tuple[int, int, int]:
    request = sequence.request
    return -request.job.priority, request.received_us, sequence.choice
