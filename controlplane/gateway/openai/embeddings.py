"""`POST /v1/embeddings`: its request, and its body, which is made vector by vector."""

import math
from array import array
from base64 import b64encode
from typing import Annotated, Literal, TypeGuard

import msgspec
from msgspec import Meta

from controlplane.gateway.answer import Charge
from controlplane.gateway.ask import Ask, Inputs
from controlplane.gateway.openai.fields import TOKEN_ID_MAX, KeptText, Name, Truncation
from controlplane.gateway.openai.parse import parse_body
from controlplane.gateway.openai.render import charge_json
from controlplane.gateway.refusal import bad_field
from inference.contract.frames import INPUTS_MAX, INPUTS_TOKENS_MAX
from inference.contract.parts import Vectors

FLOAT_BYTES = 4
# Token ids of all inputs, and the other fields.
VALUES_MAX = INPUTS_TOKENS_MAX + 16
_encode = msgspec.json.encode

Tokens = Annotated[list[int], Meta(min_length=1, max_length=INPUTS_TOKENS_MAX)]
# A list of texts, of token ids, or of lists of token ids; msgspec tells no lists apart.
Items = Annotated[list[str | int | Tokens], Meta(min_length=1, max_length=INPUTS_TOKENS_MAX)]


class EmbeddingRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of an embedding request."""

    model: Name
    input: str | Items
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=65536)] | None = None
    user: KeptText | None = None
    truncate_prompt_tokens: Truncation | None = None


_decoder = msgspec.json.Decoder(EmbeddingRequest)


def parse(data: bytes) -> Ask:
    """Body bytes to an `Ask`; raises `Refusal`."""
    request, left = parse_body(data, _decoder, values_max=VALUES_MAX)
    return Ask(
        operation="embedding",
        model=request.model,
        bytes=len(data),
        inputs=_inputs(request),
        ignored=left.ignored,
        unknown=left.unknown,
        user=request.user or "",
    )


def _inputs(request: EmbeddingRequest) -> Inputs:
    given = request.input
    texts, tokens = sorted_items(given, "input")
    listed = not isinstance(given, str) and not isinstance(given[0], int)
    made = Inputs(
        texts=texts,
        tokens=tokens,
        listed=listed,
        base64=request.encoding_format == "base64",
        dimensions=request.dimensions,
        truncate=request.truncate_prompt_tokens or None,
    )
    _check(made)
    return made


def sorted_items(
    given: str | list[str | int | list[int]], field: str
) -> tuple[tuple[str, ...], tuple[list[int], ...]]:
    """Texts, or else lists of token ids; raises `Refusal` for a mixture."""
    if isinstance(given, str):
        return (given,), ()
    if _texts(given):
        return tuple(given), ()
    if _ids(given):
        return (), (given,)
    if _lists(given):
        return (), tuple(given)
    message = f"'{field}' must not mix strings, token ids and lists of token ids."
    raise bad_field(field, message)


def check_texts(inputs: Inputs) -> None:
    """Few enough inputs, and none without text; raises `Refusal`."""
    if len(inputs) > INPUTS_MAX:
        what = inputs.name
        raise bad_field(
            what, f"'{what}' has {len(inputs)} items; at most {INPUTS_MAX} are accepted."
        )
    for place, text in enumerate(inputs.texts):
        if not text:
            field = inputs.field(place)
            raise bad_field(field, f"'{field}' is empty.")


def _check(inputs: Inputs) -> None:
    check_texts(inputs)
    for place, ids in enumerate(inputs.tokens):
        if not 0 <= min(ids) <= max(ids) < TOKEN_ID_MAX:
            field = inputs.field(place)
            raise bad_field(field, f"'{field}' contains a number that is not a token id.")


def _texts(given: list[str | int | list[int]]) -> TypeGuard[list[str]]:
    return set(map(type, given)) <= {str}


def _ids(given: list[str | int | list[int]]) -> TypeGuard[list[int]]:
    return set(map(type, given)) <= {int}


def _lists(given: list[str | int | list[int]]) -> TypeGuard[list[list[int]]]:
    return set(map(type, given)) <= {list}


class EmbeddingWriter:
    """Writer of a list of embeddings; each is written as it comes, which spreads the work."""

    __slots__ = ("_base64", "_dimensions", "_model", "_written")

    def __init__(self, ask: Ask, inputs: Inputs, *, dimensions: int) -> None:
        self._model = ask.model
        self._base64 = inputs.base64
        self._dimensions = dimensions
        self._written = [b""] * len(inputs)

    def put(self, vectors: Vectors) -> None:
        """Write the vectors of some inputs, cut to the dimensions asked for."""
        size = len(vectors.data) // len(vectors.places)
        for number, place in enumerate(vectors.places):
            data = vectors.data[number * size : (number + 1) * size]
            if size > self._dimensions * FLOAT_BYTES:
                # The first values of a vector, scaled back to length 1.
                kept = memoryview(data).cast("f")[: self._dimensions].tolist()
                length = math.sqrt(sum(value * value for value in kept)) or 1.0
                data = array("f", [value / length for value in kept]).tobytes()
            self._written[place] = b'{"object":"embedding","index":%d,"embedding":%b}' % (
                place,
                self._embedding(data),
            )

    def body(self, charge: Charge) -> bytes:
        tokens = charge.usage.prompt_tokens
        rest = {
            "model": self._model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            **charge_json(charge),
        }
        return b"".join(
            (b'{"object":"list","data":[', b",".join(self._written), b"],", _encode(rest)[1:])
        )

    def _embedding(self, data: bytes) -> bytes:
        if self._base64:
            return b'"' + b64encode(data) + b'"'
        return _encode(memoryview(data).cast("f").tolist())
