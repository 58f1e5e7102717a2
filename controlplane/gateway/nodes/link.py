"""One connected node as a state machine: raw bytes in, frames out, liveness on every tick.

It owns no socket and no task. `Fleet` admits it and ticks it; `bridge/fleet/socket.py` feeds it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from controlplane.gateway.nodes.assets import BadAssets
from controlplane.gateway.nodes.checks import check_hello, check_offers, claim_problem
from controlplane.gateway.nodes.drafts import DraftedTokens
from controlplane.gateway.nodes.facts import LinkFacts, LinkState
from controlplane.gateway.nodes.host import BadClaim, LinkHost, LinkRefused
from controlplane.gateway.nodes.index import BadEvents
from controlplane.gateway.nodes.jobs import LinkJobs
from controlplane.gateway.nodes.limits import (
    CLOSE_ELSEWHERE,
    CLOSE_LOST,
    CLOSE_POLICY,
    CLOSE_PROTOCOL,
    CLOSE_TOO_BIG,
    LinkLimits,
)
from controlplane.gateway.nodes.liveness import LOST, LinkVerdict, Liveness
from controlplane.gateway.nodes.measured.breaker import Cause, KnownNode
from controlplane.gateway.nodes.resume import LinkSocket, Session
from controlplane.gateway.nodes.stream import JobStream
from controlplane.gateway.nodes.tokens import TokenQuestions
from controlplane.gateway.ports import NodeIdentity, Orders
from controlplane.kernel.clock import monotonic_s
from inference.contract import frames
from inference.contract.codec import BadFrame, decode_from_node, encode
from inference.contract.drain import Drain, Draining, Undrain
from inference.contract.replay import Resume, Resumed
from inference.contract.tokens import Tokens


class NodeLink(LinkFacts):
    """A node on this gateway. Its `session` outlasts a socket that breaks, for a while."""

    def __init__(
        self,
        host: LinkHost,
        identity: NodeIdentity,
        *,
        send: Callable[[bytes], None],
        close: Callable[[int, str], None],
        limits: LinkLimits,
        known: KnownNode,
    ) -> None:
        super().__init__(identity, known, Session(LinkSocket(self, send=send, close=close)))
        self.limits = limits
        self.load: frames.Step | None = None
        self.cpu_permille: int | None = None
        released = partial(host.freed, self)
        self.jobs = LinkJobs(self.account, known, send=self.send_bytes, released=released)
        self.questions = TokenQuestions(self.send_bytes, limits.told_tokens)
        self._host = host
        self._liveness = Liveness(known.quiet)
        self._offers: dict[str, frames.ModelOffer] = {}
        self._strikes = 0
        self._snapshot_asked = False

    def dispatch(self, job: frames.Job, *, cached_tokens: int = 0) -> JobStream:
        """Book a credit and send a job; raises `NoCredit`, or LookupError for a foreign model."""
        offer = self._offers.get(job.model)
        if offer is None or not self.takes_jobs or self.jobs.holds(job.request):
            raise LookupError(f"node {self.identity.name} cannot take this job now")
        if bool(offer.dimensions) != bool(job.inputs):
            raise LookupError(f"node {self.identity.name} serves {job.model} for another task")
        waiting = len(job.tokens) or len(job.request_json) // frames.BYTES_PER_TOKEN
        if job.inputs:
            waiting += sum(map(len, job.inputs))
        booking = self.account.book(max(0, waiting - cached_tokens))
        stream = JobStream(
            job,
            node=self.identity.name,
            cancel=self.jobs.cancel,
            outputs_max=self.limits.stream_outputs_max * max(1, job.choices // frames.CHOICES_MAX),
        )
        self.jobs.dispatch(job, stream=stream, booking=booking, offer=offer)
        return stream

    def give_up(self, request: bytes, reason: str) -> None:
        """Want a job no longer here unless it has its first token."""
        entry = next((each for each in self.jobs.waiting() if each.job.request == request), None)
        if entry is not None:
            self.jobs.give_up(entry, reason)

    def request_asset(self, digest: str) -> None:
        """Ask for the tokenizer and template behind a digest."""
        self.send_bytes(encode(frames.AssetRequest(digest=digest)))

    def tell_gateways(self) -> None:
        """The list of gateways has changed; a link not admitted yet gets it at its welcome."""
        if self._hello is not None:
            self.send_bytes(encode(frames.Gateways(gateways=list(self._host.gateways))))

    def send_bytes(self, data: bytes) -> None:
        """Send an encoded frame, unless the link is closed."""
        if self.state is not LinkState.CLOSED:
            self.session.send(data)

    def on_bytes(self, data: bytes) -> None:
        """Take one message of the socket. Whatever it holds, this returns and raises nothing."""
        if self.state is LinkState.CLOSED:
            return
        if len(data) > frames.FRAME_BYTES_MAX:
            self.expel(CLOSE_TOO_BIG, f"frame of {len(data)} bytes")
            return
        try:
            frame = decode_from_node(data)
        except BadFrame as error:
            self.expel(CLOSE_PROTOCOL, f"undecodable frame: {error}")
            return
        if self._hello is not None:
            self.session.received += 1
        elif not isinstance(frame, frames.Hello | Resume):
            self.expel(CLOSE_PROTOCOL, "the first frame was not hello")
            return
        try:
            if (problem := claim_problem(frame)) is not None:
                raise BadClaim(problem)
            _HANDLERS[type(frame)](self, frame)
        except (BadClaim, BadEvents) as error:
            self._strike(str(error))
        except BadAssets as error:
            # Its fetch ends with the link, so that another node is asked at once.
            self.expel(CLOSE_PROTOCOL, str(error))
        except LinkRefused as refused:
            self.close(refused.code, refused.reason)

    def on_close(self, reason: str = "the node closed the link") -> None:
        """The link is over: every job of the node ends now, all credits come back."""
        if self.state is LinkState.CLOSED:
            return
        self.state = LinkState.CLOSED
        if self.jobs or not self.reachable:
            self.breaker.failed()
        self._host.leave(self, reason)
        self.jobs.fail_all(reason)
        self.questions.end()

    def on_break(self, reason: str) -> None:
        """The socket is gone without a word: the node may be back soon, and have gone on.

        What has no first token need not wait for that, where another node has room.
        """
        if not (self.session.resumable and self.jobs):
            self.on_close(reason)
            return
        self.session.lose_socket()
        self._host.broken(self, reason)
        for entry in self.jobs.waiting():
            if self._host.spare(self, entry.job.model):
                self.jobs.hand_over(entry, reason)

    def resume(self, socket: LinkSocket, frame: Resume) -> bool:
        """Go on over another socket with what either end lacks; False where that is gone."""
        away_s = self.session.resume(socket, frame, seen_s=self.seen_s)
        if away_s is None:
            return False
        socket.link = self
        self._liveness.paused(away_s)
        self.jobs.paused(away_s)
        self._host.changed(self)
        return True

    def close(self, code: int, reason: str) -> None:
        if self.state is LinkState.CLOSED:
            return
        self.session.socket.close(code, reason)
        self.on_close(reason)

    def obey(self, orders: Orders) -> None:
        """Follow what staff have decided; the node is told where that concerns it."""
        before, took_jobs = self.orders.standing, self._hello is not None and self.takes_jobs
        self.orders = orders
        if self._hello is None or self.state is LinkState.CLOSED:
            return
        if (before, took_jobs) == (orders.standing, self.takes_jobs):
            return
        if before != orders.standing and "draining" in (before, orders.standing):
            self._tell_rest()
        self._host.changed(self)

    def expel(self, code: int, reason: str) -> None:
        """Close for misbehaviour, and keep the node out for a while."""
        if self.state is LinkState.CLOSED:
            return
        self._host.quarantine(self, reason)
        self.close(code, reason)

    def tick(self) -> None:
        """Ping, and give up on a node that is silent, frozen, late or ignores cancels."""
        live, limits = self._liveness, self.limits
        if live.overslept(limits.tick_s):
            return
        if self.session.broken_s is not None:
            if monotonic_s() - self.session.broken_s > limits.resume_s:
                self.on_close("the link broke, and the node did not resume it")
            return
        verdict = self._verdict()
        if verdict is LinkVerdict.MUTE:
            self.close(CLOSE_POLICY, verdict.value)
        elif verdict in LOST:
            self.close(CLOSE_LOST, verdict.value)
        elif self._hello is not None:
            if verdict is LinkVerdict.STANDS_STILL:
                self._stands_still(verdict.value)
            if live.ping_due(limits.ping_interval_s):
                self.ping()
            self._give_up_late()
            if self.jobs.overdue_cancels(monotonic_s(), limits):
                self._strike("a cancel was not confirmed")

    @property
    def seen_s(self) -> float:
        """When the node last answered or stepped, on the monotonic clock."""
        return self._liveness.seen_s

    @property
    def suspect(self) -> bool:
        """It stands still just now, as far as is known."""
        return self._liveness.suspect

    def ping(self) -> None:
        number = self._liveness.pinged()
        self.send_bytes(encode(frames.Ping(number=number, received=self.session.received)))

    def _verdict(self) -> LinkVerdict:
        if self._hello is None:
            return self._liveness.before_hello(self.limits)
        ahead_s = self.account.queued_tokens / self.account.speed.prefill_tokens_per_s
        oldest_s = self.jobs.oldest_dispatch_s()
        return self._liveness.look(self.limits, oldest_s=oldest_s, ahead_s=ahead_s)

    def _tell_rest(self) -> None:
        orders = self.orders
        rests = orders.standing == "draining"
        self.send_bytes(encode(Drain(deadline_s=orders.drain_s) if rests else Undrain()))

    def _stands_still(self, reason: str) -> None:
        """No new work; and what waits here need not, where another node has room."""
        self.breaker.eject(Cause.STALLED)
        for entry in self.jobs.waiting():
            if self._host.spare(self, entry.job.model):
                self.jobs.give_up(entry, reason)

    def _give_up_late(self) -> None:
        """A wait for the first token may last where no other node could do better.

        What waits for a step that computes goes elsewhere, too, and says nothing of the node.
        """
        now_s = monotonic_s()
        computes = self.jobs.computes(now_s, self.limits)
        for entry in self.jobs.late(now_s, self.limits):
            spare = not entry.answered and self._host.spare(self, entry.job.model)
            if computes:
                if spare:
                    self.jobs.hand_over(entry, "the node's step takes long")
            elif entry.answered or spare:
                self.jobs.give_up(entry, "it takes longer than this node ever did")
                self.breaker.failed()

    def _strike(self, reason: str) -> None:
        self._strikes += 1
        if self._strikes >= self.limits.strikes_max:
            self.expel(CLOSE_PROTOCOL, f"strike {self._strikes}: {reason}")

    def _on_hello(self, hello: frames.Hello) -> None:
        if self._hello is not None:
            raise BadClaim("hello: said twice")
        check_hello(hello, self.identity)
        if not self._host.takes(hello.pool):
            self._welcome()  # Its list tells the node where to go.
            raise LinkRefused(CLOSE_ELSEWHERE, f"this gateway takes no nodes of {hello.pool!r}")
        self.account.credits = hello.credits
        self.account.block_size = hello.block_size
        self.account.kv_blocks = hello.kv_blocks
        self._hello = hello
        self._offers = {offer.name: offer for offer in hello.models}
        self._host.admit(self, hello)
        self.state = LinkState.READY
        self._welcome()
        if hello.session:
            self.session.begin()
        # A node that rests may have missed that staff took it back while no link was up.
        self._tell_rest()
        self._host.changed(self)

    def _welcome(self) -> None:
        welcome = frames.Welcome(
            protocol=frames.PROTOCOL_VERSION,
            gateway=self._host.gateway,
            ping_interval_s=self.limits.ping_interval_s,
            gateways=list(self._host.gateways),
            resume_s=self.limits.resume_s,
        )
        self.send_bytes(encode(welcome))

    def _on_offers(self, frame: frames.Offers) -> None:
        check_offers(frame.models, self.identity)
        self._hello = msgspec.structs.replace(
            self.hello, models=frame.models, capabilities=frame.capabilities
        )
        self.forget()
        self._offers = {offer.name: offer for offer in frame.models}
        self._host.changed(self)

    def _on_resume(self, frame: Resume) -> None:
        if self._hello is not None:
            raise BadClaim("resume: said after hello")
        if not self._host.resume(self, frame):
            self.send_bytes(encode(Resumed(received=None)))

    def _on_step(self, step: frames.Step) -> None:
        kept = self.jobs.keep(step, silence_s=self.hello.silence_s)
        moved = bool(step.outputs or step.step_us or kept)
        if moved and self._liveness.stepped(self.jobs.busy_since_s if self.jobs else None):
            self.breaker.probe()
        self.load = step
        if step.drafted or step.preemptions:
            # A step names no model, and a node has one engine.
            model = self.hello.models[0].name
            drafts = DraftedTokens(model, step.drafted, step.accepted, step.preemptions)
            self._host.on_drafts(self, drafts)
        for reason in self.jobs.on_step(step):
            self._strike(reason)

    def _on_credits(self, frame: frames.Credits) -> None:
        self.account.credits = frame.credits
        self.send_bytes(encode(frames.CreditsTaken(number=frame.number)))
        self._host.freed(self)

    def _on_kv(self, events: frames.KvEvents) -> None:
        if events.snapshot:
            self.account.sent.approximate = events.unknown
        if self._host.on_kv(self, events):
            self._snapshot_asked = False
        elif not self._snapshot_asked:
            self._snapshot_asked = True
            self.send_bytes(encode(frames.KvSnapshotRequest()))

    def _on_report(self, report: frames.Report) -> None:
        self._host.on_report(self, report)

    def _on_rejected(self, frame: frames.Rejected) -> None:
        problem = self.jobs.on_rejected(frame)
        if problem is not None:
            raise BadClaim(problem)

    def _on_draining(self, frame: Draining) -> None:
        if self.state is LinkState.READY:
            self.state = LinkState.DRAINING
            self._host.changed(self)

    def _on_pong(self, frame: frames.Pong) -> None:
        if not 0 < frame.number <= self._liveness.ping_number:
            raise BadClaim("pong.number: never sent")
        if not self.session.confirm(frame.received):
            raise BadClaim("pong.received: never sent")
        self.cpu_permille = frame.cpu_permille
        if self._liveness.ponged(idle=not self.jobs):
            self.breaker.probe()

    def _on_tokens(self, frame: Tokens) -> None:
        self.questions.answered(frame)

    def _on_asset(self, part: frames.AssetPart) -> None:
        problem = self._host.on_asset(self, part)
        if problem is not None:
            raise BadClaim(problem)


_HANDLERS: dict[type, Callable[[NodeLink, Any], None]] = {
    frames.Hello: NodeLink._on_hello,
    frames.Offers: NodeLink._on_offers,
    Resume: NodeLink._on_resume,
    frames.Credits: NodeLink._on_credits,
    frames.Step: NodeLink._on_step,
    frames.KvEvents: NodeLink._on_kv,
    frames.Report: NodeLink._on_report,
    frames.Rejected: NodeLink._on_rejected,
    Draining: NodeLink._on_draining,
    frames.Pong: NodeLink._on_pong,
    frames.AssetPart: NodeLink._on_asset,
    Tokens: NodeLink._on_tokens,
}
