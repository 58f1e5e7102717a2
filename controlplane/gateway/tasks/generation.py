"""Generating text: what a request for a completion does in stages 3, 5 and 6, token by token."""

from __future__ import annotations

import msgspec

from controlplane.gateway.answer import Charge, Piece, Writer, WriterMaker
from controlplane.gateway.app_state import AppState
from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.nodes.models import ServedModel
from controlplane.gateway.nodes.stream import JobStream
from controlplane.gateway.openai.structured import after_thoughts, bounded
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.policies.restore import Restorer
from controlplane.gateway.refusal import Refusal, bad_field, no_node
from controlplane.gateway.results import Asked, Cluster, Placement, Prepared, Prompt
from controlplane.gateway.s1_admission.hold import prompt_bound
from controlplane.gateway.s3_tokenize.blocks import hash_text
from controlplane.gateway.s3_tokenize.template import ignored_variables
from controlplane.gateway.s3_tokenize.tokenize import tokenize
from controlplane.gateway.s3_tokenize.window import ContextWindow
from controlplane.gateway.s5_infer.dispatch import JobWork, dispatch
from controlplane.gateway.s6_finish.detokenize import DETOKENIZE
from controlplane.gateway.s6_finish.finisher import Finisher
from controlplane.gateway.s6_finish.serialize import SERIALIZE, write_chunk, write_end
from controlplane.gateway.snapshot import ModelRecord
from controlplane.gateway.tasks.continuation import Continuation, can_continue
from controlplane.gateway.tasks.encoding import Encoded, encode_for
from controlplane.gateway.tasks.repeated import RepeatedPrompts
from controlplane.gateway.toolform import calls_grammar
from controlplane.kernel.clock import monotonic_ns, wall_s
from inference.contract.frames import Output, Sampling, Usage
from inference.text.model_text import ModelText

JSON_KINDS = frozenset({"json_object", "json_schema"})
# About 0.2 s of the loop.
SCORES_MAX = 262_144


class Generation:
    """A `task.Task`; `writer` is the API shape in which the client reads the answer."""

    __slots__ = ("_asked", "_call", "_encoded", "_state", "_writer")

    def __init__(self, call: Call, asked: Asked, state: AppState, writer: WriterMaker) -> None:
        self._call = call
        self._asked = asked
        self._state = state
        self._writer = writer
        self._encoded: dict[tuple[str, str], Encoded] = {}

    async def count(self, model: ModelRecord) -> int:
        """Tokens of the prompt, at most where no tokenizer can tell; raises `Refusal`."""
        served = self._state.fleet.models().get(model.name)
        if served is None:
            raise no_node(model.name)
        encoded = await self._encode(served, model)
        if encoded.request_json and not encoded.tokens:
            return prompt_bound(self._asked.ask, model)
        return len(encoded.tokens)

    async def tokenize(self, step: PlannedStep, cluster: Cluster) -> Prompt:
        """Token ids, window, block hashes; raises `Refusal`."""
        served, model = cluster.served, step.model
        encoded = await self._encode(served, model)
        tokens, lengths = encoded.tokens, encoded.lengths
        # Each prompt has to fit the window.
        longest = tokens[: max(lengths)] if lengths else tokens
        window = ContextWindow(
            window_tokens=min(model.context_window, served.context_window),
            output_tokens=step.output_tokens,
            seen_tokens=sum(each.tokens for each in encoded.pictures),
        )
        ask, project = self._asked.ask, self._asked.project
        salt = project.cache_salt(wall_s(), served.name if served.adapter else "")
        prompt = tokenize(self._call, ask, longest, window=window, cluster=cluster, salt=salt)
        scored = ask.sampling.prompt_logprobs is not None
        if lengths or encoded.pictures or scored:
            _check_scores(ask, len(tokens))
            # Nothing of them is looked for in caches.
            nothing: dict[int, list[bytes]] = {size: [] for size in prompt.chains}
            prompt = msgspec.structs.replace(
                prompt, tokens=tokens, lengths=lengths, chains=nothing, pictures=encoded.pictures
            )
        if encoded.request_json:
            chains = prompt.chains
            if not (tokens or lengths):
                chains = hash_text(encoded.request_json, block_sizes=chains, salt=prompt.salt)
            return msgspec.structs.replace(prompt, text=encoded.request_json, chains=chains)
        if served.text is not None and (ignored := ignored_variables(ask, served.text)):
            return msgspec.structs.replace(prompt, ignored=ignored)
        return prompt

    def begin(self, prepared: Prepared) -> TextAnswer:
        """Begin an answer; the times of tokens that were thrown away do not count."""
        self._call.forget_tokens()
        return TextAnswer(self._call, self._asked, prepared, self._state, self._writer)

    async def _encode(self, served: ServedModel, model: ModelRecord) -> Encoded:
        """Made once for each tokenizer, or model that sees: by stage 3, or when a hold asks."""
        own = served.takes_text or self._asked.ask.pictures
        kind = served.digest, model.name if own else ""
        encoded = self._encoded.get(kind)
        if encoded is None:
            encoded = self._encoded[kind] = await encode_for(
                self._call, self._asked, served, model, self._state
            )
        return encoded


class TextAnswer:
    """A `task.Answer` of one step of the plan, over all the nodes that have a part in it."""

    __slots__ = (
        "_ask", "_call", "_continuation", "_finisher", "_pieces", "_plain", "_prompt", "_repeated",
        "_restorer", "_sampling", "_step", "_state", "_stream", "_streamed", "_writer",
    )  # fmt: skip

    def __init__(
        self, call: Call, asked: Asked, prepared: Prepared, state: AppState, writer: WriterMaker
    ) -> None:
        served = prepared.cluster.served
        # What the server behind a node answers is text already.
        text = None if served.takes_text else served.text
        self._call = call
        self._ask = asked.ask
        self._step = prepared.step
        self._prompt = prepared.prompt
        self._state = state
        self._pieces: dict[int, Piece] = {}
        self._continuation = Continuation() if _continues(asked, prepared.prompt) else None
        self._sampling, opened = _thinking(asked.ask, text, prepared.prompt)
        self._finisher = Finisher(
            call,
            asked.ask,
            text,
            mode=asked.project.safety,
            safety=state.safety,
            opened=opened,
        )
        # Most tokens of its stream become text and nothing else.
        ask, self._restorer = asked.ask, None
        if ask.masks is not None:
            grammar = ask.sampling.grammar
            in_json = grammar is not None and grammar.kind in JSON_KINDS
            self._restorer = Restorer(ask.masks.values, in_json=in_json)
        aside = ask.continuous_usage or asked.body or self._restorer
        self._plain = ask.stream and not aside
        self._streamed: list[Piece] | None = [] if asked.body else None
        self._stream: JobStream | None = None
        self._repeated: RepeatedPrompts | None = None
        if asked.ask.repeats_prompt:
            self._repeated = RepeatedPrompts(asked.ask, prepared.prompt, text)
        self._writer: Writer = writer(
            call.request,
            asked.ask.served_by(prepared.step.model.name),
            fingerprint=f"fp_{served.digest[:12] or 'remote'}",
            token_text=served.text.token_text if served.text else _no_tokens,
            prompt_tokens=prepared.prompt.size,
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

    @property
    def capped(self) -> bool:
        """Whether the bound on its calls has ended it."""
        return self._finisher.capped

    @property
    def told(self) -> list[Piece]:
        """What its client was given, where its project keeps that; as masked as the prompt."""
        return [*(self._streamed or []), *self._pieces.values()]

    def dispatch(self, placement: Placement) -> JobStream:
        """Send the job; raises `NodeChanged`."""
        prompt, sampling = self._prompt, self._sampling
        if prompt.text:
            # A server that gets the request itself finds in it what the output has to match.
            sampling = msgspec.structs.replace(sampling, grammar=None)
        work = JobWork(
            model=self._step.model.name,
            sampling=sampling,
            tokens=[] if prompt.text else prompt.tokens,
            chains=prompt.chains,
            output_tokens=prompt.output_tokens,
            salt=prompt.salt,
            request_json=prompt.text,
            lengths=prompt.lengths,
            pictures=list(prompt.pictures),
            stop_tokens=list(self._ask.stop_tokens),
            transfer=prompt.transfer.transfer if prompt.transfer else None,
        )
        fleet, cached_tokens = self._state.fleet, placement.cached_tokens
        stream = dispatch(self._call, work, placement.link, fleet, cached_tokens=cached_tokens)
        self._stream = stream
        stream.apart = prompt.transfer.apart if prompt.transfer else None
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
        outputs = self._note(outputs)
        return self._shown(await self._finisher.feed_screened(outputs))

    def take_now(self, outputs: list[Output]) -> bytes:
        outputs = self._note(outputs)
        if not self._plain or len(outputs) != 1 or not (output := outputs[0]).tokens:
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
            if completion and not self._prompt.lengths:
                prompt_tokens = len(self._prompt.tokens)
            cached_tokens = stream.usage.cached_tokens
        return Usage(
            prompt_tokens=prompt_tokens,
            cached_tokens=min(cached_tokens, prompt_tokens),
            completion_tokens=completion,
            reasoning_tokens=min(finisher.reasoning_tokens, completion),
        )

    def last_bytes(self, charge: Charge) -> bytes:
        """The end of a stream, or the whole body."""
        pieces = None
        if not self._ask.stream:
            pieces = [self._pieces[choice] for choice in sorted(self._pieces)]
            if self._restorer is not None:
                pieces = self._restorer.restored(pieces)
        return write_end(self._call, self._writer, pieces, charge)

    def failure(self, refusal: Refusal) -> bytes | None:
        return self._writer.failure(refusal)

    def _reported(self, usage: Usage) -> Usage:
        """The engine's own count, within what the request reserved."""
        prompt_tokens = min(usage.prompt_tokens, prompt_bound(self._ask, self._step.model))
        output_all = self._step.output_tokens * self._ask.choices
        completion_tokens = min(usage.completion_tokens, output_all)
        return Usage(
            prompt_tokens=prompt_tokens,
            cached_tokens=min(usage.cached_tokens, prompt_tokens),
            completion_tokens=completion_tokens,
            # Whoever generates from text has counted: nobody here can.
            source=usage.source or "engine",
            reasoning_tokens=min(usage.reasoning_tokens, completion_tokens),
        )

    def _note(self, outputs: list[Output]) -> list[Output]:
        """Note what comes; returns what may be shown of it."""
        for output in outputs:
            if output.tokens or output.delivered:
                self._call.note_tokens()
                break
        if self._continuation is not None:
            self._continuation.take(outputs)
        return outputs if self._repeated is None else self._repeated.take(outputs)

    def _shown(self, pieces: list[Piece]) -> bytes:
        """What of the pieces goes out now; those of a whole answer wait for each other."""
        if self._repeated is not None:
            self._repeated.begin(pieces)
        if self._ask.stream:
            if self._streamed is not None:
                self._streamed += pieces
            if self._restorer is not None:
                pieces = self._restorer.restored(pieces)
            if pieces and self._ask.continuous_usage and self._stream is not None:
                pieces[0].usage = self.usage(self._stream)
            return write_chunk(self._call, self._writer, pieces)
        for piece in pieces:
            if piece.choice in self._pieces:
                self._pieces[piece.choice].join(piece)
            else:
                self._pieces[piece.choice] = piece
        return b""


def _check_scores(ask: Ask, prompt_tokens: int) -> None:
    """Scores of prompts are written at once; raises `Refusal` where they would be too many."""
    wanted = ask.sampling.prompt_logprobs
    if wanted is None or prompt_tokens * ask.sampling.n * (1 + wanted) <= SCORES_MAX:
        return
    message = (
        f"With 'echo' at most {SCORES_MAX} log probabilities of the prompts are told: send fewer "
        "prompts, or lower 'n' or 'logprobs'."
    )
    raise bad_field("logprobs", message)


def _thinking(ask: Ask, text: ModelText | None, prompt: Prompt) -> tuple[Sampling, bool | None]:
    """How to sample, and whether the prompt ends inside thoughts: None if they may begin, False
    where none can be told from the answer. A grammar holds the answer alone; raises `Refusal`.
    """
    marks = text.marks if text is not None and ask.operation == "chat" else None
    opened = False if marks is None else marks.opened(prompt.tokens)
    grammar, calls = ask.sampling.grammar, ask.calls
    if grammar is None:
        return ask.sampling, opened
    if calls is not None and text is not None and text.form is not None:
        source = calls_grammar(calls, text.form, text.names)
        grammar = bounded("lark", source, ask.grammar_field).grammar
    if marks is not None and opened is not False:
        field, called = ask.grammar_field, calls is not None
        wanted = after_thoughts(grammar, field, marks, opened=bool(opened), calls=called)
        grammar = wanted.grammar
    return msgspec.structs.replace(ask.sampling, grammar=grammar), opened


def _continues(asked: Asked, prompt: Prompt) -> bool:
    """Only on a route that wants it, and where nothing would be lost with a node."""
    rule = asked.plan.rule
    return rule is not None and rule.continues_lost and not prompt.text and can_continue(asked.ask)


def _no_tokens(token: int) -> tuple[str, bytes]:
    raise AssertionError(f"token {token} of a model without a tokenizer")
