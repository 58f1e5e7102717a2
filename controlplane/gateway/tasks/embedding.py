"""Embedding: what a request for vectors does in stages 3, 5 and 6. It is answered whole.

One for scores is the same: a cross-encoder's vectors are the scores of its inputs, two texts each;
of any other model the texts are embedded, and a score is their vectors' cosine.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import ClassVar

from controlplane.gateway.answer import Charge, Piece, VectorWriter
from controlplane.gateway.app_state import AppState
from controlplane.gateway.ask import Inputs
from controlplane.gateway.call import Call
from controlplane.gateway.nodes.models import ServedModel
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.nodes.stream import JobStream
from controlplane.gateway.openai.embeddings import EmbeddingWriter
from controlplane.gateway.openai.scores import ScoreWriter
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.refusal import Refusal, bad_field, no_node
from controlplane.gateway.results import Asked, Cluster, Placement, Prepared, Prompt
from controlplane.gateway.s3_tokenize.tokenize import encode_inputs, encode_pairs
from controlplane.gateway.s5_infer.dispatch import JobWork, dispatch
from controlplane.gateway.s6_finish.serialize import write_list, write_vectors
from controlplane.gateway.snapshot import ModelRecord
from inference.contract.frames import Output, Usage


class Embedding:
    """A `task.Task` whose answer is a list of vectors or scores; `inputs` are the request's."""

    __slots__ = ("_asked", "_call", "_encoded", "_inputs", "_state")

    def __init__(self, call: Call, asked: Asked, state: AppState) -> None:
        if asked.ask.inputs is None:
            raise TypeError("a request for vectors has inputs")
        self._call = call
        self._asked = asked
        self._state = state
        self._inputs = asked.ask.inputs
        self._encoded: dict[tuple[str, bool], list[list[int]]] = {}

    async def count(self, model: ModelRecord) -> int:
        """Tokens of all inputs; raises `Refusal`."""
        served = self._state.fleet.models().get(model.name)
        if served is None:
            raise no_node(model.name)
        return sum(map(len, await self._tokens(served, model)))

    async def tokenize(self, step: PlannedStep, cluster: Cluster) -> Prompt:
        """Token ids of every input within the window; there is no cache, so no block hashes."""
        _check_able(self._inputs, cluster.served)
        encoded = await self._tokens(cluster.served, step.model)
        return Prompt(
            tokens=list(chain.from_iterable(encoded)),
            chains={size: [] for size in cluster.block_sizes},
            output_tokens=0,
            salt=b"",
        )

    def begin(self, prepared: Prepared) -> VectorAnswer:
        """Begin an answer of which all vectors are still to come."""
        served, prompt, ask = prepared.cluster.served, prepared.prompt, self._asked.ask
        work = JobWork(
            model=prepared.step.model.name,
            sampling=ask.sampling,
            tokens=[],
            chains=prompt.chains,
            output_tokens=0,
            salt=prompt.salt,
            inputs=self._encoded[served.digest, served.scores],
        )
        dimensions = self._inputs.dimensions or served.dimensions[0]
        ask = ask.served_by(prepared.step.model.name)
        writer: VectorWriter = EmbeddingWriter(ask, self._inputs, dimensions=dimensions)
        if self._inputs.pairs:
            writer = ScoreWriter(self._call.request, ask, self._inputs)
        return VectorAnswer(self._call, work, writer, self._state.fleet)

    async def _tokens(self, served: ServedModel, model: ModelRecord) -> list[list[int]]:
        """Made once for each tokenizer: by stage 3, or earlier when a hold needs the count."""
        encoded = self._encoded.get((served.digest, served.scores))
        if encoded is None:
            if served.text is None:
                raise no_node(model.name)
            encode = encode_pairs if served.scores else encode_inputs
            window = min(model.context_window, served.context_window)
            encoded = await encode(self._call, self._inputs, served.text, window_tokens=window)
            self._encoded[served.digest, served.scores] = encoded
        return encoded


class VectorAnswer:
    """A `task.Answer` whose vectors come in any order and leave together."""

    finish = ""
    verdict = ""
    capped = False
    told: ClassVar[list[Piece]] = []

    __slots__ = ("_call", "_fleet", "_missing", "_work", "_writer")

    def __init__(self, call: Call, work: JobWork, writer: VectorWriter, fleet: Fleet) -> None:
        self._call = call
        self._work = work
        self._writer = writer
        self._fleet = fleet
        self._missing = len(work.inputs)

    @property
    def ended(self) -> bool:
        return not self._missing

    def dispatch(self, placement: Placement) -> JobStream:
        """Send the job; raises `NodeChanged`."""
        return dispatch(self._call, self._work, placement.link, self._fleet, cached_tokens=0)

    def resume(self, lost: JobStream) -> Prompt | None:
        """Nothing leaves before all of it is there."""
        return None

    @property
    def waits(self) -> bool:
        """Vectors are not screened."""
        return False

    async def take(self, outputs: list[Output]) -> bytes:
        return self.take_now(outputs)

    def take_now(self, outputs: list[Output]) -> bytes:
        """Vectors of some inputs, written as they will be sent."""
        for output in outputs:
            if output.vectors is not None:
                self._missing -= len(output.vectors.places)
                write_vectors(self._call, self._writer, output.vectors)
        return b""

    async def screened(self) -> None:
        """Vectors are not screened, but compared where scores are wanted and all are there."""
        if isinstance(self._writer, ScoreWriter) and not self._missing:
            await asyncio.to_thread(self._writer.compare)

    def usage(self, stream: JobStream) -> Usage:
        """Tokens of the inputs that the node has embedded."""
        return stream.usage

    def last_bytes(self, charge: Charge) -> bytes:
        return write_list(self._call, self._writer, charge)

    def failure(self, refusal: Refusal) -> None:
        """Vectors leave together, so that no stream of them can fail."""


def _check_able(inputs: Inputs, served: ServedModel) -> None:
    if served.scores and not inputs.pairs:
        message = f"'{served.name}' scores pairs of texts; use /v1/rerank or /v1/score."
        raise bad_field("model", message, "model_task_mismatch")
    if inputs.dimensions is None or inputs.dimensions in served.dimensions:
        return
    sizes = " or ".join(map(str, served.dimensions))
    message = (
        f"'dimensions' is {inputs.dimensions}; {served.name} returns vectors of {sizes} "
        "dimensions and does not support any other size."
    )
    raise bad_field("dimensions", message, "unsupported_dimensions")
