"""Embedding: what a request for vectors does in stages 3, 5 and 6. It is answered whole."""

from __future__ import annotations

from itertools import chain

from controlplane.gateway.answer import VectorWriter
from controlplane.gateway.ask import Inputs
from controlplane.gateway.nodes.models import ServedModel
from controlplane.gateway.nodes.stream import JobStream
from controlplane.gateway.openai.embeddings import EmbeddingWriter
from controlplane.gateway.refusal import bad_field, no_node
from controlplane.gateway.s3_tokenize.tokenize import Prompt, encode_inputs
from controlplane.gateway.s4_route.node import Placement
from controlplane.gateway.s5_infer.dispatch import Work, dispatch
from controlplane.gateway.s6_finish.serialize import write_list, write_vectors
from controlplane.gateway.snapshot import ModelRecord
from controlplane.gateway.trip import Trip, made
from inference.contract.frames import Output, Usage


class Embedding:
    """A `trip.Task` whose answer is a list of vectors."""

    finish = ""
    verdict = ""

    def __init__(self, trip: Trip) -> None:
        self._trip = trip
        self._encoded: dict[str, list[list[int]]] = {}
        self._missing = 0
        self._writer: VectorWriter | None = None

    @property
    def ended(self) -> bool:
        """Every input has its vector."""
        return not self._missing

    async def count(self, model: ModelRecord) -> int:
        """Tokens of all inputs; raises `Refusal`."""
        served = self._trip.world.fleet.models().get(model.name)
        if served is None:
            raise no_node(model.name)
        return sum(map(len, await self._tokens(served, model)))

    async def tokenize(self) -> Prompt:
        """Token ids of every input within the window; there is no cache, so no block hashes."""
        cluster = made(self._trip.cluster)
        _check_dimensions(self._inputs(), cluster.served)
        encoded = await self._tokens(cluster.served, made(self._trip.step).model)
        return Prompt(
            tokens=list(chain.from_iterable(encoded)),
            chains={link.hello.block_size: [] for link in cluster.nodes},
            output_tokens=0,
            salt=b"",
        )

    def begin(self) -> None:
        """All vectors are still to come."""
        ask, inputs = made(self._trip.admitted).ask, self._inputs()
        served = made(self._trip.cluster).served
        self._missing = len(inputs)
        dimensions = inputs.dimensions or served.dimensions[0]
        self._writer = EmbeddingWriter(ask, inputs, dimensions=dimensions)

    def dispatch(self, placement: Placement) -> JobStream:
        """Send the job; raises `NodeChanged`."""
        admitted, prompt = made(self._trip.admitted), made(self._trip.prompt)
        work = Work(
            model=made(self._trip.step).model.name,
            sampling=admitted.ask.sampling,
            tokens=[],
            chains=prompt.chains,
            output_tokens=0,
            salt=prompt.salt,
            inputs=self._encoded[made(self._trip.cluster).served.digest],
        )
        call, fleet = self._trip.call, self._trip.world.fleet
        return dispatch(call, work, placement.link, fleet, cached_tokens=0)

    def resume(self) -> bool:
        """Nothing leaves before all of it is there."""
        return False

    async def take(self, outputs: list[Output]) -> None:
        """Vectors of some inputs, written as they will be sent."""
        for output in outputs:
            if output.vectors is not None:
                self._missing -= len(output.vectors.places)
                write_vectors(self._trip.call, made(self._writer), output.vectors)

    async def screened(self) -> None:
        """Vectors are not screened."""

    def usage(self, stream: JobStream) -> Usage:
        """Tokens of the inputs that the node has embedded."""
        return stream.usage

    def last_bytes(self) -> bytes:
        """The whole body."""
        return write_list(self._trip.call, made(self._writer), made(self._trip.charge))

    def _inputs(self) -> Inputs:
        return made(made(self._trip.asked).ask.inputs)

    async def _tokens(self, served: ServedModel, model: ModelRecord) -> list[list[int]]:
        """Made once for each tokenizer: by stage 3, or earlier when a hold needs the count."""
        encoded = self._encoded.get(served.digest)
        if encoded is None:
            if served.text is None:
                raise no_node(model.name)
            encoded = self._encoded[served.digest] = await encode_inputs(
                self._trip.call,
                self._inputs(),
                served.text,
                window_tokens=min(model.context_window, served.context_window),
            )
        return encoded


def _check_dimensions(inputs: Inputs, served: ServedModel) -> None:
    if inputs.dimensions is None or inputs.dimensions in served.dimensions:
        return
    sizes = " or ".join(map(str, served.dimensions))
    message = (
        f"'dimensions' is {inputs.dimensions}; {served.name} makes vectors of {sizes} dimensions,"
        " and was not trained to have them cut to any other size."
    )
    raise bad_field("dimensions", message, "unsupported_dimensions")
