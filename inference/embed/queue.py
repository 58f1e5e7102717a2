"""Which inputs of which requests run together. Policy only: imports no torch.

A step takes one input of each request in turn, so that one of 2,048 inputs delays no other; what it
has taken is cut into runs of like length, since shorter inputs are padded to the longest of a run.
"""

from collections import deque
from dataclasses import dataclass, field

from inference.contract.frames import Job

RUN_PADDING_TOKENS_MAX = 256


@dataclass(slots=True, eq=False)
class Request:
    """A job with the places of its inputs that have not run, the longest last. Times in µs.

    `waiting_tokens` are those of inputs that have not run.
    """

    job: Job
    received_us: int
    places: list[int] = field(init=False)
    unfinished: int = field(init=False)
    waiting_tokens: int = field(init=False)
    finished_tokens: int = 0
    started_us: int | None = None
    computed_us: int = 0

    def __post_init__(self) -> None:
        inputs = self.job.inputs
        self.places = sorted(range(len(inputs)), key=lambda place: len(inputs[place]))
        self.unfinished = len(inputs)
        self.waiting_tokens = sum(map(len, inputs))


@dataclass(frozen=True, slots=True)
class Piece:
    """One input of one request."""

    request: Request
    place: int

    @property
    def tokens(self) -> list[int]:
        return self.request.job.inputs[self.place]


class InputQueue:
    """Requests in order of arrival until their last input has run."""

    def __init__(self) -> None:
        self.requests: dict[bytes, Request] = {}

    def __bool__(self) -> bool:
        return any(request.places for request in self.requests.values())

    def take(self, *, tokens_max: int, inputs_max: int) -> list[Piece]:
        """The inputs of the next step, at least one where any waits."""
        turns = deque(request for request in self.requests.values() if request.places)
        taken: list[Piece] = []
        tokens = 0
        while turns and len(taken) < inputs_max:
            request = turns.popleft()
            piece = Piece(request, request.places[-1])
            tokens += len(piece.tokens)
            if taken and tokens > tokens_max:
                break
            taken.append(piece)
            request.places.pop()
            request.waiting_tokens -= len(piece.tokens)
            if request.places:
                turns.append(request)
        return taken


def cut_runs(pieces: list[Piece]) -> list[list[Piece]]:
    """Runs of like length, longest first; each pads at most `RUN_PADDING_TOKENS_MAX` tokens."""
    runs: list[list[Piece]] = []
    padding = 0
    for piece in sorted(pieces, key=lambda each: len(each.tokens), reverse=True):
        if runs:
            padding += len(runs[-1][0].tokens) - len(piece.tokens)
        if not runs or padding > RUN_PADDING_TOKENS_MAX:
            runs.append([])
            padding = 0
        runs[-1].append(piece)
    return runs
