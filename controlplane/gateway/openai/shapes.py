"""The table of API shapes: path to operation, parser and task. A new shape is a new row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from controlplane.gateway.ask import Ask, Operation
from controlplane.gateway.embedding import Embedding
from controlplane.gateway.generation import Generation
from controlplane.gateway.openai import chat, completions, embeddings
from controlplane.gateway.openai.render import ChatWriter, CompletionWriter
from controlplane.gateway.trip import Task, Trip


class Shape(msgspec.Struct, frozen=True):
    """One endpoint of the API, by its name in the scopes of keys."""

    endpoint: str
    operation: Operation
    parse: Callable[[bytes], Ask]
    task: Callable[[Trip], Task]


_chat = partial(Generation, writer=ChatWriter)
_completion = partial(Generation, writer=CompletionWriter)

SHAPES: dict[str, Shape] = {
    "/v1/chat/completions": Shape("chat", "chat", chat.parse, _chat),
    "/v1/completions": Shape("completions", "completion", completions.parse, _completion),
    "/v1/embeddings": Shape("embeddings", "embedding", embeddings.parse, Embedding),
}
