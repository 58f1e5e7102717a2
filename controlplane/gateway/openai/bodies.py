"""What `/v1` answers, field by field; what it reads are the structs beside its parsers."""

from __future__ import annotations

from typing import Literal, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

from controlplane.gateway.openai.tools import ToolCall


class CompletionUsage(msgspec.Struct):
    """Tokens read and written; cached tokens lie inside prompt tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int]


class Charged(TypedDict):
    """The exact charge, as a decimal text."""

    cost_usd: str


class TokenChance(msgspec.Struct):
    """A token's text and bytes; a chosen one comes with the likeliest in its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TokenChance] | UnsetType = UNSET


class ChatLogprobs(msgspec.Struct):
    content: list[TokenChance]
    refusal: None = None


class ChatMessage(msgspec.Struct):
    role: Literal["assistant"]
    content: str | None
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None


class WholeCompletion(TypedDict):
    id: str
    object: str
    created: int
    model: str
    service_tier: str
    system_fingerprint: str
    usage: CompletionUsage
    sluice: Charged


class ChatCompletion(WholeCompletion):
    choices: list[ChatChoice]


class TextLogprobs(msgspec.Struct):
    """Of the first token of a prompt nothing is known."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TextChoice(msgspec.Struct):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: str | None


class TextCompletion(WholeCompletion):
    choices: list[TextChoice]


class EmbeddingVector(TypedDict):
    """`embedding` is base64 of little-endian floats where that was asked for."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(TypedDict):
    object: Literal["list"]
    data: list[EmbeddingVector]
    model: str
    usage: dict[str, int]
    sluice: Charged
