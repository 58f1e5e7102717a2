"""Generating text: what a request for a completion does in stages 3, 5 and 6, token by token."""

from __future__ import annotations

import msgspec

from controlplane.gateway.answer import Charge, Piece, Writer
from controlplane.gateway.app_state import AppState
from controlplane.gateway.call import Call
from controlplane.gateway.nodes.models import ServedModel
from controlplane.gateway.nodes.stream import JobStream
from controlplane.gateway.openai.render import ChatWriter
from controlplane.gateway.openai.upstream import request_json
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.refusal import no_node
from controlplane.gateway.results import Asked, Cluster, Placement, Prepared, Prompt
from controlplane.gateway.s1_admission.hold import prompt_bound
from controlplane.gateway.s3_tokenize.assemble import assemble
from controlplane.gateway.s3_tokenize.tokenize import encode_ask, tokenize
from controlplane.gateway.s3_tokenize.window import ContextWindow
from controlplane.gateway.s5_infer.dispatch import JobWork, dispatch
from controlplane.gateway.s6_finish.detokenize import DETOKENIZE
from controlplane.gateway.s6_finish.finisher import Finisher
from controlplane.gateway.s6_finish.serialize import SERIALIZE, write_chunk, write_end
from controlplane.gateway.snapshot import ModelRecord
from controlplane.gateway.tasks.continuation import Continuation, can_continue
from controlplane.kernel.clock import monotonic_ns
from inference.contract.frames import Output, Usage


class Encoded(msgspec.Struct, frozen=True):
    """A prompt as the nodes of a model take it: token ids, or the request itself."""

    tokens: list[int]
    request_json: bytes = b""


class Generation:
    """A `task.Task`; `writer` is the API shape in which the client reads the answer."""

    __slots__ = ("_asked", "_call", "_encoded", "_state", "_writer")

    def __init__(self, call: Call, asked: Asked, state: AppState, writer: type[ChatWriter]) -> None:
        self._call = call
        self._asked = asked
        self._state = state
        self._writer = writer
        self._encoded: dict[str, Encoded] = {}

    async def count(self, model: ModelRecord) -> int:
        """Tokens of the prompt, at most where no tokenizer can tell; raises `Refusal`."""
        served = self._state.fleet.models().get(model.name)
        if served is None:
            raise no_node(model.name)
        encoded = await self._encode(served, model)
        if encoded.request_json:
            return prompt_bound(self._asked.ask, model)
        return len(encoded.tokens)

    async def tokenize(self, step: PlannedStep, cluster: Cluster) -> Prompt:
        """Token ids, window, block hashes; raises `Refusal`."""
        served, model = cluster.served, step.model
        encoded = await self._encode(served, model)
        prompt = tokenize(
            self._call,
            self._asked.ask,
            encoded.tokens,
            window=ContextWindow(
                window_tokens=min(model.context_window, served.context_window),
                output_tokens=step.output_tokens,
            ),
            cluster=cluster,
            salt=self._asked.project.salt,
        )
        if encoded.request_json:
            return msgspec.structs.replace(prompt, text=encoded.request_json)
        return prompt

    def begin(self, prepared: Prepared) -> TextAnswer:
        """Begin an answer; the times of tokens that were thrown away do not count."""
        self._call.forget_tokens()
        return TextAnswer(self._call, self._asked, prepared, self._state, self._writer)

    async def _encode(self, served: ServedModel, model: ModelRecord) -> Encoded:
        """Made once for each tokenizer: by stage 3, or earlier when a hold needs the count."""
        encoded = self._encoded.get(served.digest)
        if encoded is None:
            encoded = self._encoded[served.digest] = await self._encode_anew(served, model)
        return encoded

    async def _encode_anew(self, served: ServedModel, model: ModelRecord) -> Encoded:
        ask = assemble(self._call, self._asked.ask)
        if served.text is None:
            # The server behind the node has the tokenizer, and refuses what is too long.
            return Encoded([], request_json(ask))
        window_tokens = model.context_window
        salt = self._asked.project.salt
        return Encoded(
            await encode_ask(self._call, ask, served.text, window_tokens=window_tokens, salt=salt)
        )


class TextAnswer:
    """A `task.Answer` of one step of the plan, over all the nodes that have a part in it."""

    __slots__ = (
        "_ask", "_call", "_continuation", "_finisher", "_pieces", "_prompt", "_step", "_state",
        "_writer",
    )  # fmt: skip

    def __init__(
        self,
        call: Call,
        asked: Asked,
        prepared: Prepared,
        state: AppState,
        writer: type[ChatWriter],
    ) -> None:
        served = prepared.cluster.served
        self._call = call
        self._ask = asked.ask
        self._step = prepared.step
        self._prompt = prepared.prompt
        self._state = state
        self._pieces: dict[int, Piece] = {}
        self._continuation = Continuation() if _continues(asked, prepared.prompt) else None
        self._finisher = Finisher(
            call, asked.ask, served.text, mode=asked.project.safety, safety=state.safety
        )
        self._writer: Writer = writer(
            call.request,
            asked.ask,
            fingerprint=f"fp_{served.digest[:12] or 'remote'}",
            token_text=served.text.token_text if served.text else _no_tokens,
        )

    @property
    def ended(self) -> bool:
        return self._finisher.ended

    @property
    def finish(self) -> str:
        return self._finisher.finish_reason

    @property
    def verdict(self) -> str:
        """What the safety layer found, in any choice."""
        return self._finisher.verdict

    def dispatch(self, placement: Placement) -> JobStream:
        """Send the job; raises `NodeChanged`."""
        prompt, sampling = self._prompt, self._ask.sampling
        if prompt.text:
            # A server that gets the request itself finds in it what the output has to match.
            sampling = msgspec.structs.replace(sampling, grammar=None)
        work = JobWork(
            model=self._step.model.name,
            sampling=sampling,
            tokens=prompt.tokens,
            chains=prompt.chains,
            output_tokens=prompt.output_tokens,
            salt=prompt.salt,
            request_json=prompt.text,
        )
        fleet, cached_tokens = self._state.fleet, placement.cached_tokens
        stream = dispatch(self._call, work, placement.link, fleet, cached_tokens=cached_tokens)
        if self._continuation is not None:
            self._continuation.dispatched()
        return stream

    def resume(self, lost: JobStream) -> Prompt | None:
        """What another node has to be asked to go on from what is delivered, where one can."""
        if self._continuation is None:
            return None
        rest = self._continuation.rest(self._prompt, lost)
        if rest is not None:
            self._prompt = rest
        return rest

    @property
    def waits(self) -> bool:
        return self._finisher.screens

    async def take(self, outputs: list[Output]) -> bytes:
        if not self.waits:
            return self.take_now(outputs)
        self._note(outputs)
        return self._shown(await self._finisher.feed_screened(outputs))

    def take_now(self, outputs: list[Output]) -> bytes:
        self._note(outputs)
        output = outputs[0]
        if not self._ask.stream or len(outputs) > 1 or not output.tokens:
            return self._shown(self._finisher.feed(outputs))
        text = self._finisher.next_text(output)
        if text is None:
            return self._shown(self._finisher.feed(outputs))
        # What most tokens of a stream need and no more; they came just now, as was noted.
        call, decoded_ns = self._call, monotonic_ns()
        data = self._writer.next_chunk(output.choice, text) if text else b""
        totals_ns = call.spans.totals_ns
        totals_ns[DETOKENIZE] += decoded_ns - call.last_token_ns
        totals_ns[SERIALIZE] += monotonic_ns() - decoded_ns
        return data

    async def screened(self) -> None:
        """Wait until `verdict` is final."""
        await self._finisher.screened()

    def usage(self, stream: JobStream) -> Usage:
        """Tokens that were generated, up to where this gateway ended a choice, and their prompt.

        Before the first token it is as much of the prompt as the node has computed.
        """
        if self._prompt.text:
            return self._reported(stream.usage)
        finisher, whole = self._finisher, self._continuation or Continuation()
        completion = whole.carried + stream.usage.completion_tokens
        if finisher.was_cut:
            completion -= whole.carried + stream.completion_tokens - finisher.cut_tokens
        prompt_tokens, cached_tokens = whole.prompt_tokens, whole.cached_tokens
        if prompt_tokens is None:
            prompt_tokens = stream.usage.prompt_tokens
            if completion:
                prompt_tokens = len(self._prompt.tokens)
            cached_tokens = stream.usage.cached_tokens
        return Usage(
            prompt_tokens=prompt_tokens,
            cached_tokens=min(cached_tokens, prompt_tokens),
            completion_tokens=completion,
        )

    def last_bytes(self, charge: Charge) -> bytes:
        """The end of a stream, or the whole body."""
        pieces = None
        if not self._ask.stream:
            pieces = [self._pieces[choice] for choice in sorted(self._pieces)]
        return write_end(self._call, self._writer, pieces, charge)

    def _reported(self, usage: Usage) -> Usage:
        """The engine's own count, within what the request reserved."""
        prompt_tokens = min(usage.prompt_tokens, prompt_bound(self._ask, self._step.model))
        output_all = self._step.output_tokens * self._ask.sampling.n
        completion_tokens = min(usage.completion_tokens, output_all)
        return Usage(
            prompt_tokens=prompt_tokens,
            cached_tokens=min(usage.cached_tokens, prompt_tokens),
            completion_tokens=completion_tokens,
            # Whoever generates from text has counted: nobody here can.
            source=usage.source or "engine",
            reasoning_tokens=min(usage.reasoning_tokens, completion_tokens),
        )

    def _note(self, outputs: list[Output]) -> None:
        for output in outputs:
            if output.tokens or output.delivered:
                self._call.note_tokens()
                break
        if self._continuation is not None:
            self._continuation.take(outputs)

    def _shown(self, pieces: list[Piece]) -> bytes:
        """What of the pieces goes out now; those of a whole answer wait for each other."""
        if self._ask.stream:
            return write_chunk(self._call, self._writer, pieces)
        for piece in pieces:
            self._collect(piece)
        return b""

    def _collect(self, piece: Piece) -> None:
        if piece.choice in self._pieces:
            self._pieces[piece.choice].join(piece)
        else:
            self._pieces[piece.choice] = piece


def _continues(asked: Asked, prompt: Prompt) -> bool:
    """Only on a route that wants it, and where nothing would be lost with a node."""
    rule = asked.plan.rule
    return rule is not None and rule.continues_lost and not prompt.text and can_continue(asked.ask)


def _no_tokens(token: int) -> tuple[str, bytes]:
    raise AssertionError(f"token {token} of a model without a tokenizer")
