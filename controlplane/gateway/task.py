"""What the pipeline does differently for each task of a model: generating text, or embedding it."""

from typing import Protocol

from controlplane.gateway.answer import Charge, Piece
from controlplane.gateway.nodes.stream import JobStream
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.results import Cluster, Placement, Prepared, Prompt
from controlplane.gateway.snapshot import ModelRecord
from inference.contract.frames import Output, Usage


class Answer(Protocol):
    """An answer in the making, from its first token on: stages 5 and 6."""

    @property
    def ended(self) -> bool:
        """Whether it is complete, whatever the node may still send."""

    @property
    def finish(self) -> str:
        """The finish reason; empty where there is none."""

    @property
    def verdict(self) -> str:
        """What the safety layer found; empty where nothing was."""

    @property
    def capped(self) -> bool:
        """Whether a bound of its project on tool calls has ended it."""

    @property
    def told(self) -> list[Piece]:
        """What its client was given, where its project keeps that."""

    def dispatch(self, placement: Placement) -> JobStream:
        """Hand the job to a node; raises `NodeChanged`."""

    def resume(self, lost: JobStream) -> Prompt | None:
        """The node was lost after the first token: what another has to be asked, if one can."""

    @property
    def waits(self) -> bool:
        """Whether outputs may have to wait for others' word; then `take_now` is not for them."""

    async def take(self, outputs: list[Output]) -> bytes:
        """Outputs of the node to what can be sent now."""

    def take_now(self, outputs: list[Output]) -> bytes:
        """The same at once."""

    async def screened(self) -> None:
        """Wait until `verdict` is final."""

    def usage(self, stream: JobStream) -> Usage:
        """What is billed of that which has been delivered."""

    def last_bytes(self, charge: Charge) -> bytes:
        """The end of a stream, or the whole body."""

    def failure(self, refusal: Refusal) -> bytes | None:
        """What ends a stream that failed, where its shape has more than an error event."""


class RequestTask(Protocol):
    """One request of a kind, before any of it is answered: stage 3."""

    async def count(self, model: ModelRecord) -> int:
        """Tokens that go into a model, for an exact hold; raises `Refusal`."""

    async def tokenize(self, step: PlannedStep, cluster: Cluster) -> Prompt:
        """Token ids, window, block hashes; raises `Refusal`."""

    def begin(self, prepared: Prepared) -> Answer:
        """Begin an answer; one that was begun before is forgotten."""
