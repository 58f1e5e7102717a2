"""Generating text: what a request for a completion does in stages 3, 5 and 6, token by token."""

from __future__ import annotations

import msgspec

from controlplane.gateway.answer import Piece, Writer
from controlplane.gateway.continuation import Continuation, can_continue
from controlplane.gateway.nodes.models import ServedModel
from controlplane.gateway.nodes.stream import JobStream
from controlplane.gateway.openai.render import ChatWriter
from controlplane.gateway.openai.upstream import request_json
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.refusal import no_node
from controlplane.gateway.s1_admission.admit import Admitted
from controlplane.gateway.s1_admission.hold import prompt_bound
from controlplane.gateway.s2_balance.balance import Cluster
from controlplane.gateway.s3_tokenize.assemble import assemble
from controlplane.gateway.s3_tokenize.tokenize import Prompt, encode_ask, tokenize
from controlplane.gateway.s3_tokenize.window import Room
from controlplane.gateway.s4_route.node import Placement
from controlplane.gateway.s5_infer.dispatch import Work, dispatch
from controlplane.gateway.s6_finish.finisher import Finisher
from controlplane.gateway.s6_finish.serialize import write_chunk, write_end
from controlplane.gateway.s6_finish.write import write_out
from controlplane.gateway.snapshot import ModelRecord
from controlplane.gateway.trip import NOTHING, Trip, made
from inference.contract.frames import Output, Usage


class Encoded(msgspec.Struct, frozen=True):
    """A prompt as the nodes of a model take it: token ids, or the request itself."""

    tokens: list[int]
    request_json: bytes = b""


class Generation:
    """A `trip.Task`; `writer` is the API shape in which the client reads it."""

    def __init__(self, trip: Trip, writer: type[ChatWriter]) -> None:
        self._trip = trip
        self._shape = writer
        self._encoded: dict[str, Encoded] = {}
        self._pieces: dict[int, Piece] = {}
        self._finisher: Finisher | None = None
        self._continuation: Continuation | None = None
        self._writer: Writer | None = None

    @property
    def ended(self) -> bool:
        """Every choice has its finish reason."""
        return made(self._finisher).ended

    @property
    def finish(self) -> str:
        """The reason of the first choice."""
        return self._finisher.finish_reason if self._finisher else ""

    @property
    def verdict(self) -> str:
        """What the safety layer found, in any choice."""
        return self._finisher.verdict if self._finisher else ""

    async def count(self, model: ModelRecord) -> int:
        """Tokens of the prompt, at most where no tokenizer can tell; raises `Refusal`."""
        served = self._trip.world.fleet.models().get(model.name)
        if served is None:
            raise no_node(model.name)
        encoded = await self._encode(served, model)
        if encoded.request_json:
            return prompt_bound(made(self._trip.asked).ask, model)
        return len(encoded.tokens)

    async def tokenize(self) -> Prompt:
        """Token ids, window, block hashes; raises `Refusal`."""
        admitted, cluster, step = self._now()
        encoded = await self._encode(cluster.served, step.model)
        prompt = tokenize(
            self._trip.call,
            admitted.ask,
            encoded.tokens,
            room=Room(
                window_tokens=min(step.model.context_window, cluster.served.context_window),
                output_tokens=step.output_tokens,
            ),
            block_sizes=[link.hello.block_size for link in cluster.nodes],
            salt=admitted.snapshot.projects[admitted.key.project].salt,
        )
        return msgspec.structs.replace(prompt, text=encoded.request_json)

    def begin(self) -> None:
        """An answer from its first token on."""
        trip = self._trip
        admitted, cluster, _ = self._now()
        served = cluster.served
        self._pieces = {}
        self._continuation = self._continues()
        trip.call.forget_tokens()
        self._finisher = Finisher(
            trip.call,
            admitted.ask,
            served.text,
            mode=admitted.snapshot.projects[admitted.key.project].safety,
            safety=trip.world.safety,
        )
        self._writer = self._shape(
            trip.call.request,
            admitted.ask,
            fingerprint=f"fp_{served.digest[:12] or 'remote'}",
            token_text=served.text.token_text if served.text else _no_tokens,
        )

    def dispatch(self, placement: Placement) -> JobStream:
        """Send the job; raises `NodeChanged`."""
        admitted, _, step = self._now()
        prompt, request_json = made(self._trip.prompt), self._request_json()
        sampling = admitted.ask.sampling
        if request_json:
            # A server that gets the request itself finds in it what the output has to match.
            sampling = msgspec.structs.replace(sampling, grammar=None)
        work = Work(
            model=step.model.name,
            sampling=sampling,
            tokens=prompt.tokens,
            chains=prompt.chains,
            output_tokens=prompt.output_tokens,
            salt=prompt.salt,
            request_json=request_json,
        )
        stream = dispatch(
            self._trip.call,
            work,
            placement.link,
            self._trip.world.fleet,
            cached_tokens=placement.cached_tokens,
        )
        if self._continuation is not None:
            self._continuation.dispatched()
        return stream

    def resume(self) -> bool:
        """Let another node go on from what is delivered; False where it could not."""
        trip = self._trip
        if self._continuation is None:
            return False
        rest = self._continuation.rest(made(trip.prompt), made(trip.stream))
        if rest is None:
            return False
        trip.prompt = rest
        return True

    async def take(self, outputs: list[Output]) -> None:
        """Text, stops, safety, shape; and out to the client."""
        trip, call = self._trip, self._trip.call
        if any(output.delivered for output in outputs):
            call.note_tokens()
        if self._continuation is not None:
            self._continuation.take(outputs)
        pieces = await made(self._finisher).feed(outputs)
        if made(trip.admitted).ask.stream:
            data = write_chunk(call, made(self._writer), pieces)
            if data:
                await write_out(call, trip.out.event(data, trip))
            return
        for piece in pieces:
            self._collect(piece)

    async def screened(self) -> None:
        """Wait until `verdict` is final."""
        if self._finisher is not None:
            await self._finisher.screened()

    def usage(self, stream: JobStream) -> Usage:
        """Tokens that were generated, up to where this gateway ended a choice, and their prompt.

        Before the first token it is as much of the prompt as the node has computed.
        """
        finisher, whole = self._finisher, self._continuation or Continuation()
        completion = whole.carried + stream.usage.completion_tokens
        if finisher is None:
            return NOTHING
        if finisher.was_cut:
            completion -= whole.carried + stream.completion_tokens - finisher.cut_tokens
        if self._request_json():
            return self._told(stream.usage)
        prompt_tokens, cached_tokens = whole.prompt_tokens, whole.cached_tokens
        if prompt_tokens is None:
            prompt_tokens = stream.usage.prompt_tokens
            if completion:
                prompt_tokens = len(made(self._trip.prompt).tokens)
            cached_tokens = stream.usage.cached_tokens
        return Usage(
            prompt_tokens=prompt_tokens,
            cached_tokens=min(cached_tokens, prompt_tokens),
            completion_tokens=completion,
        )

    def last_bytes(self) -> bytes:
        """The end of a stream, or the whole body."""
        streamed = made(self._trip.admitted).ask.stream
        pieces = None if streamed else [self._pieces[choice] for choice in sorted(self._pieces)]
        return write_end(self._trip.call, made(self._writer), pieces, made(self._trip.charge))

    def _now(self) -> tuple[Admitted, Cluster, PlannedStep]:
        """The request, and where the step under way sends it."""
        return made(self._trip.admitted), made(self._trip.cluster), made(self._trip.step)

    async def _encode(self, served: ServedModel, model: ModelRecord) -> Encoded:
        """Made once for each tokenizer: by stage 3, or earlier when a hold needs the count."""
        encoded = self._encoded.get(served.digest)
        if encoded is None:
            encoded = self._encoded[served.digest] = await self._encode_anew(served, model)
        return encoded

    async def _encode_anew(self, served: ServedModel, model: ModelRecord) -> Encoded:
        ask = assemble(self._trip.call, made(self._trip.asked).ask)
        if served.text is None:
            # The server behind the node has the tokenizer, and refuses what is too long.
            return Encoded([], request_json(ask))
        window_tokens = model.context_window
        call = self._trip.call
        return Encoded(await encode_ask(call, ask, served.text, window_tokens=window_tokens))

    def _continues(self) -> Continuation | None:
        """Only on a route that wants it, and where nothing would be lost with a node."""
        admitted = made(self._trip.admitted)
        rule = admitted.plan.rule
        if rule is None or not rule.continues_lost or self._request_json():
            return None
        return Continuation() if can_continue(admitted.ask) else None

    def _request_json(self) -> bytes:
        return self._encoded[made(self._trip.cluster).served.digest].request_json

    def _told(self, usage: Usage) -> Usage:
        """The engine's own count, within what the request reserved."""
        admitted, _, step = self._now()
        prompt_tokens = min(usage.prompt_tokens, prompt_bound(admitted.ask, step.model))
        output_all = step.output_tokens * admitted.ask.sampling.n
        completion_tokens = min(usage.completion_tokens, output_all)
        return Usage(
            prompt_tokens=prompt_tokens,
            cached_tokens=min(usage.cached_tokens, prompt_tokens),
            completion_tokens=completion_tokens,
            # Whoever generates from text has counted: nobody here can.
            source=usage.source or "engine",
            reasoning_tokens=min(usage.reasoning_tokens, completion_tokens),
        )

    def _collect(self, piece: Piece) -> None:
        if piece.choice in self._pieces:
            self._pieces[piece.choice].join(piece)
        else:
            self._pieces[piece.choice] = piece


def _no_tokens(token: int) -> tuple[str, bytes]:
    raise AssertionError(f"token {token} of a model without a tokenizer")
