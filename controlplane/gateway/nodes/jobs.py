"""The jobs that one node has from us: outputs to streams, every claim checked, credits released.

A job stays here until the node has ended it, so a cancelled one keeps its credit until confirmed.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from math import inf

from controlplane.gateway.nodes.checks import (
    DURATION_US_MAX,
    completion_problem,
    output_problem,
    progress_problem,
    scores_problem,
    text_output_problem,
    vectors_problem,
)
from controlplane.gateway.nodes.limits import FORGOTTEN_MAX, LinkLimits
from controlplane.gateway.nodes.measured.account import JobBooking, NodeAccount
from controlplane.gateway.nodes.measured.breaker import KnownNode
from controlplane.gateway.nodes.measured.times import FACTOR, FirstToken
from controlplane.gateway.nodes.stream import JobStream
from controlplane.kernel.clock import monotonic_s
from inference.contract import frames
from inference.contract.codec import encode

MICROSECONDS_PER_S = 1_000_000
MS_PER_S = 1000


class OpenJob:
    """One job between dispatch and its last output."""

    __slots__ = (
        "_singly", "answered", "booking", "cancelled_s", "dispatched_s", "finished", "job",
        "kept_s", "longest_gap_s", "missing", "moved_s", "offer", "scored", "stream",
        "waiting_tokens",
    )  # fmt: skip

    def __init__(
        self,
        job: frames.Job,
        stream: JobStream,
        booking: JobBooking,
        *,
        offer: frames.ModelOffer,
        waiting_tokens: int,
    ) -> None:
        self.job = job
        self.stream = stream
        self.booking = booking
        self.offer = offer
        self.missing = set(range(len(job.inputs)))
        self.waiting_tokens = waiting_tokens
        self.dispatched_s = self.moved_s = monotonic_s()
        self.kept_s = -inf
        self.longest_gap_s = 0.0
        self.answered = False
        self.cancelled_s: float | None = None
        self.finished: set[int] = set()
        # Tokens of prompts whose log probabilities have come, by the choice that has them.
        self.scored: dict[int, int] = defaultdict(int)
        scores = job.sampling.prompt_logprobs is not None
        self._singly = job.choices == 1 and not (job.inputs or job.request_json or scores)

    def move(self, now_s: float) -> None:
        gap_s = now_s - self.moved_s
        if gap_s > self.longest_gap_s:
            self.longest_gap_s = gap_s
        self.moved_s = now_s

    def pause(self, seconds: float) -> None:
        self.dispatched_s += seconds
        self.moved_s += seconds
        self.kept_s += seconds
        if self.cancelled_s is not None:
            self.cancelled_s += seconds

    def goes_on(self, output: frames.Output) -> bool:
        """Whether this is the next token of the only choice, as most are, and all of it possible.

        Of any other `problem` knows what to make.
        """
        usage, timing, tokens = output.usage, output.timing, output.tokens
        before, delivered = self.stream.usage, self.stream.completion_tokens + 1
        return (
            self._singly
            and self.answered
            and len(tokens) == 1
            and 0 <= tokens[0] < self.offer.vocab_size
            and output.choice == 0
            and output.finish is None
            and output.logprobs is None
            and output.prompt_logprobs is None
            and output.text is None
            and output.reasoning is None
            and output.tool_calls is None
            and output.vectors is None
            # Compared with what was within its range before.
            and usage.prompt_tokens == before.prompt_tokens
            and usage.cached_tokens == before.cached_tokens
            and usage.reasoning_tokens == before.reasoning_tokens
            and usage.source == before.source
            and before.completion_tokens <= usage.completion_tokens <= delivered
            and delivered <= self.job.sampling.max_tokens
            and 0 <= timing.queue_us <= DURATION_US_MAX
            and 0 <= timing.prefill_us <= DURATION_US_MAX
            and 0 <= timing.decode_us <= DURATION_US_MAX
            and 0 <= timing.held_us <= DURATION_US_MAX
        )

    def problem(self, output: frames.Output) -> str | None:
        """Why this output cannot be true, given all that came before it."""
        stream, vocab_size = self.stream, self.offer.vocab_size
        ended = output.finish is not None and stream.choices_open == 1
        delivered = stream.completion_tokens + len(output.tokens)
        if output.choice in self.finished:
            return "output.choice: it has finished already"
        if self.job.inputs:
            dimensions = self.offer.dimensions[0]
            return vectors_problem(output, self.job, missing=self.missing, dimensions=dimensions)
        if self.job.request_json:
            return text_output_problem(output, choices=self.job.choices, vocab_size=vocab_size)
        return (
            output_problem(output, job=self.job, vocab_size=vocab_size)
            or scores_problem(
                output, self.job, scored=self.scored.get(output.choice, 0), vocab_size=vocab_size
            )
            or progress_problem(output.usage, stream.usage, prompt_tokens=len(self.job.tokens))
            or completion_problem(output.usage, self.job, delivered_tokens=delivered, ended=ended)
        )


class LinkJobs:
    def __init__(
        self,
        account: NodeAccount,
        known: KnownNode,
        *,
        send: Callable[[bytes], None],
        released: Callable[[], None],
    ) -> None:
        self.busy_since_s = 0.0
        # When the node last said that a step computes, and how long it lets one.
        self._computed_s, self._silence_s = -inf, 0.0
        self._account = account
        self._known = known
        self._breaker = known.breaker
        self._send = send
        self._released = released
        self._open: dict[bytes, OpenJob] = {}
        self._forgotten: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def dispatch(
        self, job: frames.Job, *, stream: JobStream, booking: JobBooking, offer: frames.ModelOffer
    ) -> None:
        """Send a booked job to the node; one that no frame can hold is rejected here.

        The node would refuse such a frame with the whole link, and all its other jobs.
        """
        if not self._open:
            self.busy_since_s = monotonic_s()
        waiting = self._account.queued_tokens
        entry = OpenJob(job, stream, booking, offer=offer, waiting_tokens=waiting)
        self._open[job.request] = entry
        data = encode(job)
        if len(data) > frames.FRAME_BYTES_MAX:
            self._close(entry)
            stream.reject(
                "too_long", f"its job of {len(data)} bytes is over {frames.FRAME_BYTES_MAX}"
            )
            return
        self._send(data)

    def holds(self, request: bytes) -> bool:
        """The node has this job and has not ended it."""
        return request in self._open

    def cancel(self, request: bytes) -> None:
        """Ask the node to stop a job, once; the job stays until the node confirms."""
        entry = self._open.get(request)
        if entry is None or entry.cancelled_s is not None:
            return
        entry.cancelled_s = monotonic_s()
        self._send(encode(frames.Cancel(request=request)))

    def on_step(self, step: frames.Step) -> list[str]:
        """Hand outputs to their streams; returns one reason per output that cannot be true."""
        problems: list[str] = []
        moved: list[JobStream] = []
        now_s = monotonic_s()
        self._account.on_step(step, now_s)
        for output in step.outputs:
            entry = self._open.get(output.request)
            if entry is None:
                if output.request not in self._forgotten:
                    problems.append("output.request: not a job of this link")
                continue
            if entry.goes_on(output):
                entry.move(now_s)
                entry.stream.push(output)
            elif (problem := entry.problem(output)) is None:
                self._deliver(entry, output, now_s)
            else:
                problems.append(problem)
                self._distrust(entry, problem)
            moved.append(entry.stream)
        for stream in moved:
            stream.flush()
        return problems

    def keep(self, step: frames.Step, *, silence_s: float) -> bool:
        """Note which jobs live although they bring nothing, and whether a step computes jobs of any
        gateway; False where there is neither.

        A server that is silent for longer than its node allows counts as dead, and so does a step.
        """
        now_s, bound_ms = monotonic_s(), silence_s * MS_PER_S
        named = [(self._open.get(each.request), each.silent_ms) for each in step.processing]
        kept = [entry for entry, ms in named if entry and ms <= bound_ms]
        for entry in kept:
            entry.kept_s = now_s
        computes = 0 < step.computing_ms <= bound_ms
        if computes:
            self._computed_s, self._silence_s = now_s, silence_s
        return computes or bool(kept)

    def computes(self, now_s: float, limits: LinkLimits) -> bool:
        """The node has said lately that a step computes."""
        return now_s - self._computed_s <= limits.kept_s

    def on_rejected(self, frame: frames.Rejected) -> str | None:
        """End a job that the node did not take; returns a reason when there is no such job."""
        entry = self._open.get(frame.request)
        if entry is None:
            return None if frame.request in self._forgotten else "rejected.request: unknown"
        if entry.stream.completion_tokens:
            return "rejected.request: the job has outputs already"
        self._close(entry)
        entry.stream.reject(frame.code, frame.message)
        return None

    def fail_all(self, reason: str) -> None:
        """The node is lost: end every stream at once and give all credits back."""
        for entry in list(self._open.values()):
            self._close(entry)
            entry.stream.lose(reason)

    def oldest_dispatch_s(self) -> float | None:
        """When the longest waiting job was sent; None without jobs."""
        return min((entry.dispatched_s for entry in self._open.values()), default=None)

    def late(self, now_s: float, limits: LinkLimits) -> list[OpenJob]:
        """Jobs that take longer than this node ever makes others wait."""
        bounds: dict[str, tuple[float, float]] = {}
        late = []
        for entry in self._open.values():
            if entry.cancelled_s is not None or now_s - entry.kept_s <= limits.kept_s:
                continue
            model = entry.job.model
            if model not in bounds:
                times = self._known.times(model)
                gap_s = limits.inter_token.of(times.longest_gap)
                bounds[model] = (limits.first_token.of(times.first), gap_s)
            first_s, gap_s = bounds[model]
            bound_s = gap_s
            if not entry.answered:
                bound_s = min(first_s + self._ahead_s(entry), limits.first_token.cap_s)
            if now_s - entry.moved_s > bound_s:
                late.append(entry)
        return late

    def waiting(self) -> list[OpenJob]:
        """Jobs that have brought nothing yet and are still wanted."""
        return [e for e in self._open.values() if not e.answered and e.cancelled_s is None]

    def give_up(self, entry: OpenJob, reason: str) -> None:
        """Want a job no longer here, where it takes too long; it may be done elsewhere."""
        if not entry.answered:
            # Kept as a sample, or a bound that is too short could never grow.
            self._note_first(entry, monotonic_s())
        self.hand_over(entry, reason)

    def hand_over(self, entry: OpenJob, reason: str) -> None:
        """The same where the time that it took says nothing of the node."""
        self.cancel(entry.job.request)
        self._forget(entry)
        entry.stream.lose(reason)

    def paused(self, seconds: float) -> None:
        """Nothing could be heard of any job for so long, which counts for none as a wait."""
        self.busy_since_s += seconds
        self._computed_s += seconds
        for entry in self._open.values():
            entry.pause(seconds)

    def unanswered(self) -> list[str]:
        """Models of the jobs without any token yet: they wait on the node or are prefilled."""
        return [
            entry.job.model for entry in self._open.values() if not entry.stream.completion_tokens
        ]

    def overdue_cancels(self, now_s: float, limits: LinkLimits) -> int:
        """Give up on cancels that were not confirmed in time; returns how many.

        An engine confirms none within a step: while one computes, the time does not begin.
        """
        bound_s = limits.cancel_confirm_s
        longest_s = max(bound_s, self._silence_s)
        late = [
            entry
            for entry in self._open.values()
            if (since_s := entry.cancelled_s) is not None
            and (now_s - max(since_s, self._computed_s) > bound_s or now_s - since_s > longest_s)
        ]
        for entry in late:
            self._forget(entry)
            self._breaker.failed()
            entry.stream.lose("the node did not confirm a cancel")
        return len(late)

    def _deliver(self, entry: OpenJob, output: frames.Output, now_s: float) -> None:
        stream = entry.stream
        if output.vectors is not None:
            entry.missing.difference_update(output.vectors.places)
        # Of what is to be embedded some waits until the end.
        if output.finish is not None if entry.job.inputs else not stream.completion_tokens:
            if output.finish is None or stream.choices_open > 1:
                # Else it is released in a moment, and with it what waits.
                entry.booking.prefilled()
            if entry.job.transfer is None:
                self._learn_prefill(output)
        if entry.answered:
            entry.move(now_s)
        elif output.delivered or output.prompt_logprobs:
            self._note_first(entry, now_s)
            self._breaker.answered()
        if output.prompt_logprobs:
            entry.scored[output.choice] += len(output.prompt_logprobs)
        if output.finish is not None:
            entry.finished.add(output.choice)
        stream.push(output)
        if stream.ended:
            self._close(entry)
            self._judge(entry, output.finish)

    def _note_first(self, entry: OpenJob, now_s: float) -> None:
        entry.answered = True
        first = FirstToken(now_s - entry.dispatched_s, entry.waiting_tokens)
        self._known.times(entry.job.model).began(first)
        entry.moved_s = now_s

    def _judge(self, entry: OpenJob, finish: str | None) -> None:
        """What its end says of the node; a grammar can fail by its own complexity."""
        self._known.times(entry.job.model).longest_gap.record(entry.longest_gap_s)
        if finish == "error":
            if entry.job.sampling.grammar is None:
                self._breaker.failed()
        elif finish != "cancelled":
            self._breaker.succeeded()

    def _ahead_s(self, entry: OpenJob) -> float:
        """Seconds that the prompts before a job's first token take, at the learned rate."""
        speed = self._account.speed
        ahead_s = FACTOR * entry.waiting_tokens / speed.prefill_tokens_per_s
        return ahead_s if speed.learned_prefill else 0.0

    def _learn_prefill(self, output: frames.Output) -> None:
        uncached_tokens = output.usage.prompt_tokens - output.usage.cached_tokens
        if output.timing.prefill_us and uncached_tokens:
            seconds = output.timing.prefill_us / MICROSECONDS_PER_S
            self._account.learn_prefill(uncached_tokens, seconds)

    def _distrust(self, entry: OpenJob, problem: str) -> None:
        # A dropped output leaves a hole in the stream, so this job cannot go on; others can.
        self.cancel(entry.job.request)
        self._forget(entry)
        self._breaker.failed()
        entry.stream.lose(f"the node sent an impossible output ({problem})")

    def _forget(self, entry: OpenJob) -> None:
        """Close a job that the node may still speak of; its late frames are no offence."""
        self._forgotten[entry.job.request] = None
        if len(self._forgotten) > FORGOTTEN_MAX:
            self._forgotten.popitem(last=False)
        self._close(entry)

    def _close(self, entry: OpenJob) -> None:
        del self._open[entry.job.request]
        entry.booking.release()
        self._released()
