"""`GET /v1/openapi.json`: the API's description of itself, from the types that it reads and sends.

It says nothing of this installation, so whoever asks may have it.
"""

from functools import cache
from typing import Any

import msgspec

from controlplane.gateway.anthropic.messages import CountedTokens, CountRequest, MessagesRequest
from controlplane.gateway.anthropic.render import AnsweredMessage
from controlplane.gateway.openai import scores
from controlplane.gateway.openai.bodies import ChatCompletion, EmbeddingList, TextCompletion
from controlplane.gateway.openai.chat import ChatRequest
from controlplane.gateway.openai.completions import CompletionRequest
from controlplane.gateway.openai.embeddings import EmbeddingRequest
from controlplane.gateway.openai.key import KeyAnswer
from controlplane.gateway.openai.models import ModelFacts, ModelList
from controlplane.gateway.openai.preflight import Preflight
from controlplane.gateway.responses.request import ResponseRequest
from controlplane.gateway.responses.writer import ResponseObject
from controlplane.gateway.tasks import extras
from controlplane.gateway.tasks.extras import ModerationList, ModerationRequest
from controlplane.kernel.apis import Error, components_of

JSON = "application/json"
TEXT = {"type": "string"}
EVENTS = {"text/event-stream": {"schema": TEXT | {"description": "The events of the API."}}}
RETRY = {"name": "Idempotency-Key", "in": "header", "schema": TEXT}
BEARER = {"type": "http", "scheme": "bearer", "description": "An inference key."}
# Name, summary, what is answered, what is sent.
OPERATIONS: dict[str, tuple[str, str, Any, Any]] = {
    "/v1/chat/completions": ("createChatCompletion", "Answer a chat.", ChatCompletion, ChatRequest),
    "/v1/completions": ("createCompletion", "Continue a text.", TextCompletion, CompletionRequest),
    "/v1/responses": ("createResponse", "Answer as a response.", ResponseObject, ResponseRequest),
    "/v1/embeddings": ("createEmbedding", "Embed texts.", EmbeddingList, EmbeddingRequest),
    "/v1/rerank": ("createRerank", "Order documents.", scores.RerankList, scores.RerankRequest),
    "/v1/score": ("createScore", "Score pairs of texts.", scores.ScoreList, scores.ScoreRequest),
    "/v1/moderations": ("createModeration", "Judge texts.", ModerationList, ModerationRequest),
    "/v1/tokenize": ("tokenize", "Get token ids.", extras.TokenList, extras.TokenizeRequest),
    "/v1/detokenize": ("detokenize", "Get a text.", extras.Detokenized, extras.DetokenizeRequest),
    "/v1/messages": ("createMessage", "Answer a chat.", AnsweredMessage, MessagesRequest),
    "/v1/messages/count_tokens": ("countTokens", "Count a prompt.", CountedTokens, CountRequest),
    "/v1/preflight": ("createPreflight", "See what a chat would meet.", Preflight, ChatRequest),
    "/v1/models": ("listModels", "List the models of the key.", ModelList, None),
    "/v1/models/{model}": ("retrieveModel", "Get a model.", ModelFacts, None),
    "/v1/key": ("retrieveKey", "Get what is left of limits and budgets.", KeyAnswer, None),
}


@cache
def description() -> bytes:
    """The document in OpenAPI 3.1: the same for everybody, as long as the process lives."""
    types = {each for *_, answer, body in OPERATIONS.values() for each in (answer, body) if each}
    listed = [Error, *sorted(types, key=lambda each: str(each.__name__))]
    refs, components = components_of(listed)
    for schema in components.values():
        # More is taken than is named here; see `tolerant.py`.
        schema.pop("additionalProperties", None)
    content = {each: {JSON: {"schema": ref}} for each, ref in zip(listed, refs, strict=True)}
    told = {
        "openapi": "3.1.1",
        "info": {"title": "Sluice inference", "version": "1"},
        "security": [{"inferenceKey": []}],
        "paths": {path: _path(path, *told, content) for path, told in OPERATIONS.items()},
        "components": {"schemas": components, "securitySchemes": {"inferenceKey": BEARER}},
    }
    return msgspec.json.encode(told)


def _path(
    path: str, name: str, summary: str, answer: Any, body: Any, content: dict[Any, Any]
) -> dict[str, Any]:
    """A path has one operation: `post` where it takes a body, else `get`."""
    failed = {"description": "See `code`.", "content": content[Error]}
    streams = EVENTS if path.endswith(("completions", "messages", "responses")) else {}
    done = {"description": "Done.", "content": content[answer] | streams}
    told: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {"200": done, "4XX": failed, "5XX": failed},
    }
    if "{model}" in path:
        told["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": TEXT}]
    if body is None:
        return {"get": told}
    told["parameters"] = [RETRY]
    told["requestBody"] = {"required": True, "content": content[body]}
    return {"post": told}
