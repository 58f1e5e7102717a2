"""The one Protocol that every engine implements."""

from typing import Protocol

import msgspec

from inference.contract.capabilities import Capability
from inference.contract.frames import Job, KvEvents, Step
from inference.contract.roofline import Ceilings
from inference.engines.computing import Computing
from inference.errors import JobRefused


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine declares about itself once it has loaded; sizes in tokens and blocks.

    What `capabilities` lists, the conformance suite asserts; `check_job` refuses the rest.
    `dimensions` are the sizes of vectors that an engine which embeds can make, its own first;
    `ceilings` are known once it has started, where it can say them. `silence_s` is how long a
    server behind the engine may send nothing, 0 where there is none.
    """

    engine: str
    device: str
    dtype: str
    model: str
    context_window: int
    vocab_size: int
    block_size: int
    kv_blocks: int
    credits: int
    capabilities: tuple[Capability, ...]
    dimensions: tuple[int, ...] = ()
    ceilings: Ceilings | None = None
    silence_s: float = 0.0

    @property
    def reports_steps(self) -> bool:
        """Whether it can say which step is under way and how much CPU time that has used."""
        return self.device == "cpu"


class EngineEvents(Protocol):
    """Where an engine puts what it made; called on the event loop's thread, never blocking."""

    def on_step(self, step: Step) -> None:
        """All outputs of one engine step."""

    def on_kv(self, events: KvEvents) -> None:
        """Blocks stored and removed since the last call, in order."""

    def on_refused(self, request: bytes, refused: JobRefused) -> None:
        """A submitted job could not be taken after all; it has no outputs and gets none."""

    def on_death(self, error: BaseException) -> None:
        """The engine cannot continue; the node exits and registers again."""


class Engine(Protocol):
    """A model behind a continuous batch. `submit` and `cancel` return at once and never block.

    Every submitted request ends in exactly one Output with `finish` per choice, cancelled ones
    included, or in one `on_refused` before any output; after it the request's KV blocks are free.
    """

    @property
    def facts(self) -> EngineFacts:
        """Known from construction on; `start` replaces what is known only after loading."""

    async def start(self, events: EngineEvents) -> None:
        """Load, warm up and begin stepping."""

    def submit(self, job: Job) -> None:
        """Queue a job; raises `JobRefused`."""

    def cancel(self, request: bytes) -> None:
        """Idempotent; unknown requests are ignored."""

    def kv_snapshot(self) -> KvEvents:
        """All blocks that can be found now, with the sequence number that they stand for."""

    def computing(self) -> Computing | None:
        """The step under way; None between steps, and where CPU time says nothing of it: on a GPU,
        or behind a server.
        """

    async def close(self) -> None:
        """Stop stepping and give memory back."""
