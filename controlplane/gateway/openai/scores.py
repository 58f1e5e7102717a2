"""`POST /v1/rerank` (Jina's and Cohere's shape) and `/v1/score` (vLLM's): requests and bodies."""

import math
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta

from controlplane.gateway.answer import Charge
from controlplane.gateway.ask import Ask, Inputs
from controlplane.gateway.openai.bodies import Charged
from controlplane.gateway.openai.embeddings import check_texts
from controlplane.gateway.openai.fields import KeptText, Name
from controlplane.gateway.openai.parse import parse_body
from controlplane.gateway.openai.render import charge_json
from controlplane.gateway.refusal import bad_field
from controlplane.kernel.ids import id_time_ms
from inference.contract.frames import INPUTS_MAX
from inference.contract.parts import Vectors

# Of pairs, a model that embeds gets both texts.
Texts = Annotated[list[str], Meta(min_length=1, max_length=INPUTS_MAX // 2)]


class RankedDocument(msgspec.Struct):
    text: str


class RerankRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Documents to be ordered by how well they answer a query."""

    model: Name
    query: str
    documents: Annotated[list[str | RankedDocument], Meta(min_length=1, max_length=INPUTS_MAX - 1)]
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool | None = None
    user: KeptText | None = None


class ScoreRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Each of `text_2` is scored with that of `text_1` at its place, or with the only one."""

    model: Name
    text_1: str | Texts
    text_2: str | Texts
    user: KeptText | None = None


class Scored(TypedDict):
    id: str
    model: str
    usage: dict[str, int]
    sluice: Charged


class RerankList(Scored):
    """Of `results` each has `index`, `relevance_score` and, unless refused, `document`."""

    results: list[dict[str, Any]]


class ScoreList(Scored):
    object: Literal["list"]
    created: int
    data: list[dict[str, Any]]


_encode = msgspec.json.encode
_rerank = msgspec.json.Decoder(RerankRequest)
_score = msgspec.json.Decoder(ScoreRequest)


def parse_rerank(data: bytes) -> Ask:
    """Body bytes to an `Ask`; raises `Refusal`."""
    request, left = parse_body(data, _rerank)
    texts = [each if isinstance(each, str) else each.text for each in request.documents]
    inputs = _paired({"query": request.query, "documents": texts}, request.top_n)
    return Ask(
        operation="rerank",
        model=request.model,
        bytes=len(data),
        inputs=inputs,
        shows_texts=request.return_documents is not False,
        user=request.user or "",
        **left._asdict(),
    )


def parse_score(data: bytes) -> Ask:
    """Body bytes to an `Ask`; raises `Refusal`."""
    request, left = parse_body(data, _score)
    inputs = _paired({"text_1": request.text_1, "text_2": request.text_2})
    return Ask(
        operation="score",
        model=request.model,
        bytes=len(data),
        inputs=inputs,
        user=request.user or "",
        **left._asdict(),
    )


def _paired(fields: dict[str, str | list[str]], top_n: int | None = None) -> Inputs:
    """Two fields of texts: the only one of the first with all of the other, or each with each."""
    texts: list[str] = []
    names: list[str] = []
    for field, given in fields.items():
        several = [] if isinstance(given, str) else given
        texts += several or [str(given)]
        names += [f"{field}[{place}]" for place in range(len(several))] or [field]
    count = len(several) or 1
    first = len(texts) - count
    if first not in (1, count):
        raise bad_field("text_1", "'text_1' must be one text, or as many as 'text_2' has.")
    pairs = tuple([(place % first, first + place) for place in range(count)])
    made = Inputs(texts=tuple(texts), names=names, pairs=pairs, top_n=top_n)
    check_texts(made)
    return made


class ScoreWriter:
    """Writer of scores: in order, or from the best on."""

    def __init__(self, request: bytes, ask: Ask, inputs: Inputs) -> None:
        self._request, self._ask, self._inputs = request, ask, inputs
        self._scores: list[float] = []
        self._vectors: dict[int, tuple[float, ...]] = {}

    def put(self, vectors: Vectors) -> None:
        values = memoryview(vectors.data).cast("f")
        rows = zip(*[iter(values)] * (len(values) // len(vectors.places)), strict=True)
        self._vectors |= zip(vectors.places, rows, strict=True)

    def compare(self) -> None:
        """All have come: a pair's score is its own only value, or the cosine of two vectors."""
        found, pairs = self._vectors, self._inputs.pairs
        if len(found[0]) == 1:
            self._scores = [found[place][0] for place in range(len(pairs))]
            return
        lengths = {place: math.hypot(*values) or 1.0 for place, values in found.items()}
        for one, two in pairs:
            # By the sides of a triangle, which needs no loop of Python's over the dimensions.
            far, a, b = math.dist(found[one], found[two]), lengths[one], lengths[two]
            self._scores.append((a * a + b * b - far * far) / (2 * a * b))

    def body(self, charge: Charge) -> bytes:
        """The whole answer, after `compare`."""
        ask, tokens, request = self._ask, charge.usage.prompt_tokens, self._request
        whole: dict[str, Any] = {
            "id": f"{ask.operation}-{request.hex()}",
            "model": ask.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            **charge_json(charge),
        }
        if ask.operation == "rerank":
            return _encode(whole | {"results": self._best()})
        whole |= {"object": "list", "created": id_time_ms(request) // 1000}
        scores = enumerate(self._scores)
        data = [{"index": at, "object": "score", "score": score} for at, score in scores]
        return _encode(whole | {"data": data})

    def _best(self) -> list[dict[str, Any]]:
        scores, texts = self._scores, self._inputs.texts[1:]
        best = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
        results: list[dict[str, Any]] = []
        for at in best[: self._inputs.top_n]:
            masks = self._ask.masks
            text = texts[at] if masks is None else masks.restore(texts[at])
            shown = {"document": {"text": text}} if self._ask.shows_texts else {}
            results.append({"index": at, "relevance_score": scores[at], **shown})
        return results
