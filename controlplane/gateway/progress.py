"""What changes while a request runs, how far it has come, and where its answer goes."""

from dataclasses import dataclass
from typing import Protocol

from controlplane.gateway.answer import Charge
from controlplane.gateway.app_state import AppState
from controlplane.gateway.call import Call
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.stream import JobStream
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.ports import ReplayedAnswer
from controlplane.gateway.refusal import CONTENT_FILTER, Refusal
from controlplane.gateway.results import Admitted, Asked, Cluster, Placement, Prompt
from controlplane.gateway.s1_admission.claim import HeldClaim
from controlplane.gateway.snapshot import KeyRecord
from controlplane.gateway.task import Answer
from controlplane.kernel.receipt import NodeAttempt, PassedStep
from controlplane.kernel.spans import INDEX
from inference.contract.frames import Output, Usage

FAILED_FINISHES = frozenset({"error", "cancelled"})
# After which another node or model may answer.
LOOKED_AT = FAILED_FINISHES | {CONTENT_FILTER}
S5, S6, WRITE = (INDEX[name] for name in ("s5_infer", "s6_finish", "s6_finish.write"))
NOTHING = Usage(prompt_tokens=0, cached_tokens=0, completion_tokens=0)


class Trail:
    """The results of the stages that have run, for headers and the record; None where one has not.

    The pipeline writes it and hands results on itself: no stage reads them here. Of the plan's
    steps `passed` could not serve; `cluster`, `prompt` and `placement` are those of `step`.
    """

    __slots__ = (
        "admitted", "asked", "attempts", "cluster", "key", "passed", "placement", "prompt", "step",
    )  # fmt: skip

    def __init__(self) -> None:
        self.key: KeyRecord | None = None
        self.asked: Asked | None = None
        self.admitted: Admitted | None = None
        self.step: PlannedStep | None = None
        self.cluster: Cluster | None = None
        self.prompt: Prompt | None = None
        self.placement: Placement | None = None
        self.passed: list[PassedStep] = []
        self.attempts: list[NodeAttempt] = []

    def begin(self, step: PlannedStep) -> None:
        """Begin a step: nothing that an earlier one has made stands."""
        self.step = step
        self.cluster = self.prompt = self.placement = None


@dataclass(slots=True, eq=False, repr=False)
class Progress:
    """One request under way: its job, its money, its end.

    `node` is the last that had the job, in whichever step: its report is to be acknowledged.
    `withheld`: nothing reached the client before the request failed. `cut`: its own task was
    cancelled, as when the gateway stops.
    """

    call: Call
    state: AppState
    trail: Trail
    claim: HeldClaim | None = None
    answer: Answer | None = None
    stream: JobStream | None = None
    node: NodeLink | None = None
    charge: Charge | None = None
    refusal: Refusal | None = None
    withheld: bool = False
    cut: bool = False
    delivered: bool = False
    settled: bool = False
    released: bool = False

    def fail(self, refusal: Refusal, *, started: bool) -> None:
        """End with this refusal; a whole answer that fails is not billed."""
        self.refusal = refusal
        self.withheld = not started

    @property
    def usage(self) -> Usage:
        if self.stream is None or self.answer is None or (self.withheld and not self.call.gone):
            return NOTHING
        return self.answer.usage(self.stream)

    def release(self) -> None:
        """Give the limiter's allowance back, once."""
        admitted = self.trail.admitted
        if admitted is not None and not self.released:
            self.released = True
            self.state.limiter.release(admitted.allowance)

    def used_tokens(self, usage: Usage) -> int:
        """What counts against the limit of tokens. A client that left is counted the prompt that a
        node was given for it, also where that node cannot tell how much of it it has computed.
        """
        given, prompt = 0, self.trail.prompt
        if self.call.gone and self.stream is not None and prompt and not usage.prompt_tokens:
            given = prompt.size
        return max(given, usage.prompt_tokens - usage.cached_tokens) + usage.completion_tokens


class Out(Protocol):
    """One HTTP response; what it is given is on its way at once."""

    @property
    def started(self) -> bool:
        """Whether anything has reached the client."""

    @property
    def paused(self) -> bool:
        """Whether the client has to read, until `drained`, before more events are sent."""

    async def drained(self) -> None:
        """Wait until the client has read enough; raises ConnectionError where it does not."""

    def detach(self) -> None:
        """Send nothing more, as though nothing had been sent: whoever asked has an answer."""

    def refuse(self, refusal: Refusal, trail: Trail) -> None:
        """Answer with an error; as an event, without end mark, where a stream has begun."""

    def fail(self, event: bytes) -> None:
        """End a stream that has begun with the event of its failure."""

    def event(self, data: bytes, trail: Trail) -> None:
        """Send events; the first call sends status and headers before them."""

    def replay(self, kept: ReplayedAnswer, trail: Trail) -> None:
        """Send an answer that was given before, whole."""

    def end(self, data: bytes, trail: Trail) -> None:
        """Send the last bytes: the end of a stream, or the whole body."""


class Passing:
    """Outputs of one job on their way through stages 5 and 6, and the time that both took."""

    __slots__ = ("_answer", "_began_ns", "_out", "_run")

    def __init__(self, run: Progress, answer: Answer, out: Out) -> None:
        self._run = run
        self._answer = answer
        self._out = out
        self._began_ns = run.call.spans.clock()

    def comes(self) -> None:
        """Outputs have come."""
        self._began_ns = self._run.call.spans.add(S5, self._began_ns)

    def gone(self) -> None:
        """They are with the client, or kept for it."""
        self._began_ns = self._run.call.spans.add(S6, self._began_ns)

    def take(self, outputs: list[Output]) -> bool:
        """Hand on outputs in the turn that brings them, unless that has to wait or fails one."""
        run, out, spans = self._run, self._out, self._run.call.spans
        if out.paused:
            return False
        for output in outputs:
            if output.finish is not None and output.finish in LOOKED_AT:
                return False
        self.comes()
        data = self._answer.take_now(outputs)
        if data:
            if run.claim is not None:
                run.claim.note(data)
            began_ns = spans.clock()
            out.event(data, run.trail)
            spans.add(WRITE, began_ns)
        self.gone()
        if self._answer.ended and run.stream is not None:
            run.stream.leave()
        return True
