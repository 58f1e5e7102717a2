"""The table of API shapes: path to operation, parser and writer. A new shape is a new row."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from controlplane.gateway.ask import Ask, Operation
from controlplane.gateway.openai import chat, completions, embeddings
from controlplane.gateway.openai.render import ChatWriter, CompletionWriter


class Shape(msgspec.Struct, frozen=True):
    """One endpoint of the API."""

    operation: Operation
    parse: Callable[[bytes], Ask]
    writer: type[ChatWriter]


SHAPES: dict[str, Shape] = {
    "/v1/chat/completions": Shape("chat", chat.parse, ChatWriter),
    "/v1/completions": Shape("completion", completions.parse, CompletionWriter),
    "/v1/embeddings": Shape("embedding", embeddings.parse, ChatWriter),
}
