"""The one Protocol that every engine implements; a step in progress, and whether it computes: a
thread that hangs uses no CPU time. And the clock by which engines report.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from inference.contract.capabilities import Capability
from inference.contract.frames import Job, KvEvents, Step
from inference.contract.roofline import Ceilings, ComputePath
from inference.errors import JobRefused

PROCESSES = Path("/proc")
THREADS = PROCESSES / "self/task"
# Counted from the parenthesis that closes the command's name: time in user mode, and in the kernel.
USER_FIELD, SYSTEM_FIELD = 11, 12
# A step of an engine without a pool of blocks, in which nothing happened.
NO_STEP = Step(
    outputs=[], running=0, waiting=0, waiting_tokens=0, kv_free_blocks=0, oldest_block_s=0.0,
    step_us=0, preemptions=0,
)  # fmt: skip


class Computing(NamedTuple):
    """The requests of a step, when it began, and how to read the CPU seconds of what computes it.

    `began_s` is on the monotonic clock, `cpu_s` counts from any beginning.
    """

    requests: list[bytes]
    began_s: float
    cpu_s: Callable[[], float]


def clock_us() -> int:
    return time.monotonic_ns() // 1000


def thread_cpu_s(native_id: int) -> float:
    """What a thread of this process has used so far, in steps of 10 ms; 0 where it is not known."""
    return account_s(THREADS / str(native_id), USER_FIELD, SYSTEM_FIELD) or 0.0


def account_s(account: Path, *fields: int) -> float | None:
    """The sum of these times of a process or thread; None where no such account is kept."""
    try:
        values = (account / "stat").read_text().rpartition(")")[2].split()
        ticks = sum(int(values[each]) for each in fields)
    except (OSError, ValueError, IndexError):
        return None
    return ticks / os.sysconf("SC_CLK_TCK")


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine declares about itself once it has loaded; sizes in tokens and blocks.

    What `capabilities` lists, the conformance suite asserts; `check_job` refuses the rest.
    `dimensions` are the sizes of vectors that an engine which embeds can make, its own first;
    `ceilings` and `path` are known once it has started, where it can say them; the node measures
    the rates of `path`. `silence_s` is how long a server behind the engine may send nothing, 0
    where there is none. `models` are names and windows where it serves several, which may change;
    then `model` names none of them, and it is not `probed`: each token would be paid for.
    `adapters` are further models that it serves, made of `model`.
    """

    engine: str
    device: str
    dtype: str
    model: str
    context_window: int
    credits: int
    capabilities: tuple[Capability, ...]
    vocab_size: int = 0
    block_size: int = 1
    kv_blocks: int = 0
    dimensions: tuple[int, ...] = ()
    ceilings: Ceilings | None = None
    path: ComputePath | None = None
    silence_s: float = 0.0
    adapters: tuple[str, ...] = ()
    models: tuple[tuple[str, int], ...] = ()
    probed: bool = True

    @property
    def offered(self) -> Sequence[tuple[str, int]]:
        """Names and windows of all models that it serves."""
        own = (self.model, *self.adapters)
        return self.models or [(name, self.context_window) for name in own]

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


@runtime_checkable
class TellsTokens(Protocol):
    """An engine that may have `Capability.TOKENIZES`."""

    async def token_ids(self, model: str, request_json: bytes) -> bytes:
        """Packed ids of a prompt, as in `Tokens`; none where they are not told. Never raises."""
