"""`POST /v1/embeddings`: the request. Its answer waits for an engine that embeds."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from controlplane.gateway.ask import Ask
from controlplane.gateway.openai.fields import Name, ShortText
from controlplane.gateway.openai.parse import parse_body
from inference.contract.frames import Sampling

INPUTS_MAX = 2048


class EmbeddingRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of an embedding request."""

    model: Name
    input: str | Annotated[list[str | int | list[int]], Meta(min_length=1, max_length=INPUTS_MAX)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=65536)] | None = None
    user: ShortText | None = None


_decoder = msgspec.json.Decoder(EmbeddingRequest)


def parse(data: bytes) -> Ask:
    """Body bytes to an `Ask`; raises `Refusal`."""
    request = parse_body(data, _decoder)
    return Ask(
        operation="embedding",
        model=request.model,
        stream=False,
        include_usage=False,
        sampling=Sampling(max_tokens=0),
        output_tokens=None,
        stop=(),
        bytes=len(data),
    )
