"""The table of API shapes by path. A new shape is a folder of edges and its rows here."""

from functools import partial

from controlplane.gateway.anthropic import messages
from controlplane.gateway.anthropic.render import AnthropicDialect, MessageWriter
from controlplane.gateway.http.shape import ApiShape, Dialect
from controlplane.gateway.openai import chat, completions, embeddings, scores
from controlplane.gateway.openai.render import ChatWriter, CompletionWriter, OpenAIDialect
from controlplane.gateway.responses import request as responses
from controlplane.gateway.responses.kept import KeptResponse
from controlplane.gateway.responses.writer import ResponseWriter
from controlplane.gateway.tasks.embedding import Embedding
from controlplane.gateway.tasks.generation import Generation

OPENAI = OpenAIDialect()
ANTHROPIC = AnthropicDialect()
MESSAGES_PATH = "/v1/messages"
_chat = partial(Generation, writer=ChatWriter)
_message = partial(Generation, writer=MessageWriter)
_response = partial(Generation, writer=ResponseWriter)
_text = partial(Generation, writer=CompletionWriter)
_rerank = ApiShape("rerank", "rerank", scores.parse_rerank, Embedding)
_score = ApiShape("score", "score", scores.parse_score, Embedding)

SHAPES: dict[str, ApiShape] = {
    "/v1/chat/completions": ApiShape("chat", "chat", chat.parse, _chat),
    "/v1/completions": ApiShape("completions", "completion", completions.parse, _text),
    "/v1/embeddings": ApiShape("embeddings", "embedding", embeddings.parse, Embedding),
    # Rerankers' clients and vLLM's each have paths of their own.
    **dict.fromkeys(("/v1/rerank", "/v2/rerank", "/rerank"), _rerank),
    **dict.fromkeys(("/v1/score", "/score"), _score),
    "/v1/responses": ApiShape("responses", "chat", responses.parse, _response, KeptResponse),
    MESSAGES_PATH: ApiShape("messages", "chat", messages.parse, _message),
}
COUNT_SHAPE = ApiShape("messages", "chat", messages.parse_count, _message)


def dialect_of(path: str) -> Dialect:
    """That of the clients who call such a path, also where none answers there."""
    return ANTHROPIC if f"{path}/".startswith(MESSAGES_PATH + "/") else OPENAI
