"""`POST /v1/chat/completions`: its request, its chunks and its body."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from controlplane.gateway.ask import Ask, Turn
from controlplane.gateway.openai.fields import (
    Common,
    Count,
    ShortText,
    check_common,
    include_usage,
    sampling_of,
    stop_strings,
)
from controlplane.gateway.openai.parse import parse_body
from controlplane.gateway.refusal import bad_field
from inference.contract.frames import LOGPROBS_MAX

MESSAGES_MAX = 2048
PARTS_MAX = 64


class TextPart(msgspec.Struct, tag="text", tag_field="type", forbid_unknown_fields=True):
    """A piece of text."""

    text: str


class ImagePart(msgspec.Struct, tag="image_url", tag_field="type"):
    """An image; refused by name, since no served model sees."""


class AudioPart(msgspec.Struct, tag="input_audio", tag_field="type"):
    """A sound; refused by name."""


class FilePart(msgspec.Struct, tag="file", tag_field="type"):
    """A file; refused by name."""


Part = TextPart | ImagePart | AudioPart | FilePart


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """One message; `developer` is read as `system`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[Part], Meta(min_length=1, max_length=PARTS_MAX)]
    name: ShortText | None = None


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True):
    """Only plain text until an engine offers structured output."""

    type: Literal["text"]


class ChatRequest(Common, kw_only=True):
    """The body of a chat completion."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MESSAGES_MAX)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=LOGPROBS_MAX)] | None = None
    response_format: ResponseFormat | None = None


_decoder = msgspec.json.Decoder(ChatRequest)


def parse(data: bytes) -> Ask:
    """Body bytes to an `Ask`; raises `Refusal`."""
    request = parse_body(data, _decoder)
    check_common(request)
    if request.top_logprobs is not None and not request.logprobs:
        raise bad_field("top_logprobs", "'top_logprobs' needs 'logprobs': true.")
    return Ask(
        operation="chat",
        model=request.model,
        stream=bool(request.stream),
        include_usage=include_usage(request),
        sampling=sampling_of(
            request, logprobs=(request.top_logprobs or 0) if request.logprobs else None
        ),
        output_tokens=_output_tokens(request),
        stop=stop_strings(request.stop),
        bytes=len(data),
        output_field="max_completion_tokens" if request.max_completion_tokens else "max_tokens",
        turns=tuple(_turn(place, message) for place, message in enumerate(request.messages)),
    )


def _output_tokens(request: ChatRequest) -> int | None:
    both = (request.max_tokens, request.max_completion_tokens)
    if None not in both and both[0] != both[1]:
        raise bad_field(
            "max_completion_tokens", "'max_tokens' and 'max_completion_tokens' differ; send one."
        )
    return request.max_completion_tokens or request.max_tokens


def _turn(place: int, message: Message) -> Turn:
    role = "system" if message.role == "developer" else message.role
    if isinstance(message.content, str):
        return Turn(role, message.content)
    texts = []
    for number, part in enumerate(message.content):
        if not isinstance(part, TextPart):
            kind = type(part).__name__.removesuffix("Part").lower()
            raise bad_field(
                f"messages[{place}].content[{number}]", f"This model does not accept {kind} parts."
            )
        texts.append(part.text)
    return Turn(role, "".join(texts))
