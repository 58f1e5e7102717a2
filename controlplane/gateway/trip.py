"""One request's way through the pipeline: what each stage has made so far. State, no decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from controlplane.gateway.answer import Charge
from controlplane.gateway.call import Call
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.stream import JobStream
from controlplane.gateway.plan import PassedStep, Plan, PlannedStep
from controlplane.gateway.ports import KeptAnswer, Ticket
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.s1_admission.admit import Admitted, Asked
from controlplane.gateway.s2_balance.balance import Cluster
from controlplane.gateway.s3_tokenize.tokenize import Prompt
from controlplane.gateway.s4_route.node import Placement
from controlplane.gateway.snapshot import KeyRecord, ModelRecord
from controlplane.gateway.world import World
from inference.contract.frames import BYTES_PER_TOKEN, Output, Usage

NOTHING = Usage(prompt_tokens=0, cached_tokens=0, completion_tokens=0)
Made = TypeVar("Made")


class Out(Protocol):
    """Where the answer goes: the ASGI side of one request."""

    @property
    def started(self) -> bool:
        """Whether anything has reached the client."""

    async def refuse(self, refusal: Refusal, trip: Trip) -> None:
        """Answer with an error; as an event, without end mark, where a stream has begun."""

    async def event(self, data: bytes, trip: Trip) -> None:
        """Send events; the first call sends status and headers before them."""

    async def replay(self, kept: KeptAnswer, trip: Trip) -> None:
        """Send an answer that was given before, whole."""

    async def end(self, data: bytes, trip: Trip) -> None:
        """Send the last bytes: the end of a stream, or the whole body."""


class Task(Protocol):
    """What the pipeline does differently for each task of a model: generating, or embedding.

    `finish` and `verdict` are for the record: the finish reason, and what the safety layer found.
    """

    @property
    def ended(self) -> bool:
        """The answer is complete, whatever the node may still send."""

    @property
    def finish(self) -> str:
        """Empty where there is none."""

    @property
    def verdict(self) -> str:
        """Empty where nothing was found."""

    async def count(self, model: ModelRecord) -> int:
        """Tokens that go into a model, for an exact hold; raises `Refusal`."""

    async def tokenize(self) -> Prompt:
        """Stage 3; raises `Refusal`."""

    def begin(self) -> None:
        """Another attempt: forget what the one before has brought."""

    def dispatch(self, placement: Placement) -> JobStream:
        """Stage 5: hand the job to a node; raises `NodeChanged`."""

    def resume(self) -> bool:
        """The node was lost after its first token: whether another can go on from there."""

    async def take(self, outputs: list[Output]) -> None:
        """Stage 6: what has come from the node."""

    async def screened(self) -> None:
        """Wait until `verdict` is final."""

    def usage(self, stream: JobStream) -> Usage:
        """What is billed of that which has been delivered."""

    def last_bytes(self) -> bytes:
        """The end of a stream, or the whole body."""


class Attempt(msgspec.Struct, frozen=True):
    """A node that had the request and did not finish it, and why."""

    node: str
    reason: str


class Trip:
    """What one request has gathered; None where a stage has not run.

    `step` is the plan's step under way, `passed` are those that could not serve. `dispatched_to` is
    the last node that had the job, in whichever step: its report is to be acknowledged. `ticket`
    is its claim on an `Idempotency-Key`, until `claim_told` what became of it. `cut`: its own task
    was cancelled, as when the gateway ends.
    """

    def __init__(
        self, call: Call, world: World, out: Out, make_task: Callable[[Trip], Task]
    ) -> None:
        self.call = call
        self.world = world
        self.out = out
        self.key: KeyRecord | None = None
        self.asked: Asked | None = None
        self.admitted: Admitted | None = None
        self.step: PlannedStep | None = None
        self.passed: list[PassedStep] = []
        self.cluster: Cluster | None = None
        self.prompt: Prompt | None = None
        self.placement: Placement | None = None
        self.attempts: list[Attempt] = []
        self.stream: JobStream | None = None
        self.dispatched_to: NodeLink | None = None
        self.charge: Charge | None = None
        self.refusal: Refusal | None = None
        self.failed_whole = False
        self.watcher: asyncio.Task[None] | None = None
        self.ticket: Ticket | None = None
        self.claim_told = False
        self.resolved = False
        self.released = False
        self.cut = False
        self.ended = False
        self.task = make_task(self)

    @property
    def plan(self) -> Plan | None:
        """Where the request may go."""
        return None if self.asked is None else self.asked.plan

    def begin_step(self, step: PlannedStep) -> None:
        """The next step: nothing that an earlier one has made stands."""
        self.step = step
        self.cluster = self.prompt = self.placement = self.stream = None

    def pass_step(self, reason: str) -> None:
        """The step under way cannot serve."""
        step = made(self.step)
        self.passed.append(PassedStep(step.number, step.model.name, step.pool, reason))

    def usage(self) -> Usage:
        """What is billed. Nothing, when nothing reached the client: a whole answer failed."""
        if self.stream is None or (self.failed_whole and not self.call.gone):
            return NOTHING
        return self.task.usage(self.stream)

    def release(self) -> None:
        """Give the limiter's allowance back, once."""
        if self.admitted is not None and not self.released:
            self.released = True
            self.world.limiter.release(self.admitted.allowance)

    def used_tokens(self, usage: Usage) -> int:
        """What counts against the limit of tokens. A client that left is counted the prompt that a
        node was given for it, also where that node cannot tell how much of it it has computed.
        """
        given = 0
        if self.call.gone and self.stream is not None and not usage.prompt_tokens:
            prompt = made(self.prompt)
            given = len(prompt.tokens) or len(prompt.text) // BYTES_PER_TOKEN
        return max(given, usage.prompt_tokens - usage.cached_tokens) + usage.completion_tokens


def made(value: Made | None) -> Made:
    """A result that an earlier stage must have left; its absence is a bug in the pipeline."""
    if value is None:
        raise AssertionError("a stage ran before the one that it needs")
    return value
