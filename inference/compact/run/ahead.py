"""The engine step where a device computes beside the host: while it computes one step, the host
reads and publishes the one before, and plans the next.

A planned step takes the tokens of the one before from where they were drawn, on the device; they
are read once the device has been given the step. What is drawn depends on tokens that are read by
then (masks of grammars, penalties, counts), so a step is drawn after the one before was published,
while the device still computes its logits. A choice that ends by a token or a cancel is computed
once more than it need be, which nobody sees: its row is neither published nor counted, and its
place in the cache is written before anyone else can have it, since the device keeps the order of
what it is given. One that ends by its length is not planned again. Drafts only follow tokens that
were read, so steps that may have them wait for each other as without this.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from inference.compact.run.loop import Model, StepLoop
from inference.compact.schedule.outputs import SampledToken
from inference.compact.schedule.scheduler import Chunk
from inference.contract.frames import Output, Step


class Drawn(Protocol):
    """One token for each sampled row of a step, perhaps not computed yet."""

    def read(self) -> list[SampledToken]:
        """Wait for them."""


class LaunchingModel(Model, Protocol):
    """What computes a step while its owner does something else."""

    def launch(self, chunks: list[Chunk], before: Any) -> Callable[[], Drawn]:
        """Begin with a step; some chunks take tokens of what it drew `before`, None if that was
        read. What is returned must be called before the next one is launched: it draws, which needs
        all earlier tokens.
        """


class Flight(NamedTuple):
    """A step that was launched and not yet read."""

    chunks: list[Chunk]
    drawn: Drawn
    began_us: int


@dataclass(eq=False)
class AheadLoop(StepLoop):
    """A `StepLoop` that is a step ahead of its outputs."""

    model: LaunchingModel
    _flight: Flight | None = field(default=None, init=False)
    _landed_us: int = field(default=0, init=False)

    @property
    def has_work(self) -> bool:
        return super().has_work or self._flight is not None

    def end_all(self, finish: str) -> Step:
        self._flight = None
        return super().end_all(finish)

    def _compute(self, started_us: int) -> tuple[list[Chunk], list[Output]]:
        flight = self._flight
        if flight is not None and self.scheduler.may_draft:
            return flight.chunks, self._land(flight)
        chunks = self.scheduler.schedule(started_us, drafts=flight is None)
        self.under_way = started_us, chunks
        draw = self.model.launch(chunks, flight and flight.drawn) if chunks else None
        self.scheduler.advance(chunks)
        outputs = [] if flight is None else self._land(flight)
        if draw is not None:
            self._flight = Flight(chunks, draw(), started_us)
            self._await(chunks)
        self.under_way = None
        if flight is not None:
            return flight.chunks, outputs
        if self._flight is not None and (
            self.scheduler.may_draft or any(chunk.drafts for chunk in chunks)
        ):
            return chunks, self._land(self._flight)
        return [], []

    def _land(self, flight: Flight) -> list[Output]:
        """Read and publish; it took the time since the one before was, where that was later."""
        self._flight = None
        began_us = max(flight.began_us, self._landed_us)
        outputs = self._computed(flight.chunks, flight.drawn.read(), began_us)
        self._landed_us = self.clock_us()
        return outputs

    def _await(self, chunks: list[Chunk]) -> None:
        """Note where the next tokens are, of choices that will have more behind those."""
        row = 0
        for chunk in chunks:
            sequence = chunk.sequence
            going = sequence.finish is None and not chunk.drafts
            most = sequence.request.job.sampling.max_tokens
            if chunk.sampled_rows and going and sequence.generated + 1 < most:
                sequence.source = row
            row += chunk.sampled_rows

    def _append(self, chunk: Chunk, sampled: list[SampledToken], now_us: int) -> list[SampledToken]:
        sequence = chunk.sequence
        sequence.source = None
        if sequence.blocks:
            # What was not known when the step was planned.
            self.scheduler.cache_blocks(sequence, len(sequence.tokens))
        return super()._append(chunk, sampled, now_us)
