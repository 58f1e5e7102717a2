"""Sequences waiting for admission: highest priority first, then oldest first. No torch."""

from heapq import heapify, heappop, heappush

from inference.compact.schedule.request import Request, Sequence


class WaitingQueue:
    """A heap on (priority, arrival, choice); a preempted sequence comes back to its old place."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int, Sequence]] = []
        self._pushes = 0
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, sequence: Sequence) -> None:
        """Add a sequence; `sequence.uncached_tokens` is what it will probably have to compute."""
        self._pushes += 1
        request = sequence.request
        place = (-request.job.priority, request.received_us, sequence.choice, self._pushes)
        heappush(self._heap, (*place, sequence))
        self.tokens += sequence.uncached_tokens

    def peek(self) -> Sequence:
        return self._heap[0][-1]

    def pop(self) -> Sequence:
        sequence = heappop(self._heap)[-1]
        self.tokens -= sequence.uncached_tokens
        return sequence

    def remove(self, request: Request) -> None:
        kept = [entry for entry in self._heap if entry[-1].request is not request]
        if len(kept) != len(self._heap):
            self._heap = kept
            heapify(self._heap)
            self.tokens = sum(entry[-1].uncached_tokens for entry in kept)
