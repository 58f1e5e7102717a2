"""The table of API shapes: path to operation, parser and task. A new shape is a new row."""

from collections.abc import Callable
from functools import partial

import msgspec

from controlplane.gateway.app_state import AppState
from controlplane.gateway.ask import Ask, Operation
from controlplane.gateway.call import Call
from controlplane.gateway.openai import chat, completions, embeddings
from controlplane.gateway.openai.render import ChatWriter, CompletionWriter
from controlplane.gateway.results import Asked
from controlplane.gateway.task import RequestTask
from controlplane.gateway.tasks.embedding import Embedding
from controlplane.gateway.tasks.generation import Generation


class ApiShape(msgspec.Struct, frozen=True):
    """One endpoint of the API, by its name in the scopes of keys."""

    endpoint: str
    operation: Operation
    parse: Callable[[bytes], Ask]
    task: Callable[[Call, Asked, AppState], RequestTask]


_chat = partial(Generation, writer=ChatWriter)
_completion = partial(Generation, writer=CompletionWriter)

SHAPES: dict[str, ApiShape] = {
    "/v1/chat/completions": ApiShape("chat", "chat", chat.parse, _chat),
    "/v1/completions": ApiShape("completions", "completion", completions.parse, _completion),
    "/v1/embeddings": ApiShape("embeddings", "embedding", embeddings.parse, Embedding),
}
