"""`GET /v1/openapi.json`: the API's description of itself, from the types that it reads and sends.

It says nothing of this installation, so whoever asks may have it.
"""

import re
from functools import cache
from typing import Any

import msgspec

from controlplane.gateway.anthropic.messages import CountedTokens, CountRequest, MessagesRequest
from controlplane.gateway.anthropic.render import AnsweredMessage
from controlplane.gateway.batches.http import BatchRequest
from controlplane.gateway.batches.objects import (
    BatchList,
    BatchObject,
    Deleted,
    FileList,
    FileObject,
    ItemList,
)
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
from controlplane.gateway.tasks.feedback import FeedbackObject, FeedbackRequest
from controlplane.kernel.apis import Error, components_of

JSON = "application/json"
TEXT = {"type": "string"}
EVENTS = {"text/event-stream": {"schema": TEXT | {"description": "The events of the API."}}}
RETRY = {"name": "Idempotency-Key", "in": "header", "schema": TEXT}
BEARER = {"type": "http", "scheme": "bearer", "description": "An inference key."}
BINARY = TEXT | {"format": "binary"}
BYTES = {"application/octet-stream": {"schema": BINARY}}
UPLOADED = {"file": BINARY, "purpose": {"const": "batch"}}
# What is sent to upload a file.
FORM = "multipart/form-data"
# What may be in a query, and how much of that in whose.
QUERY: dict[str, Any] = {
    "after": TEXT, "limit": {"type": "integer"}, "order": {"enum": ["asc", "desc"]},
    "purpose": TEXT,
}  # fmt: skip
QUERIES = {"listBatches": 2, "listInputItems": 3, "listFiles": 4}
RESPONSE, FILE, BATCH = "/v1/responses/{response}", "/v1/files/{file}", "/v1/batches/{batch}"
# Name, summary, what is answered, what is sent; GET where that is nothing, else POST.
_ALONE: dict[str, tuple[str, str, Any, Any]] = {
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
# By path and method; None is answered by bytes.
OPERATIONS: dict[tuple[str, str], tuple[str, str, Any, Any]] = {
    **{(path, "post" if told[-1] else "get"): told for path, told in _ALONE.items()},
    (RESPONSE, "get"): ("retrieveResponse", "Get a stored response.", ResponseObject, None),
    (RESPONSE, "delete"): ("deleteResponse", "Delete a stored response.", Deleted, None),
    (f"{RESPONSE}/cancel", "post"): ("cancelResponse", "Cancel a response.", ResponseObject, None),
    (f"{RESPONSE}/input_items", "get"): ("listInputItems", "List its input.", ItemList, None),
    ("/v1/requests/{request}/feedback", "post"): (
        "rateRequest",
        "Rate an answer.",
        FeedbackObject,
        FeedbackRequest,
    ),
    ("/v1/files", "post"): ("createFile", "Upload a file.", FileObject, FORM),
    ("/v1/files", "get"): ("listFiles", "List files.", FileList, None),
    (FILE, "get"): ("retrieveFile", "Get facts of a file.", FileObject, None),
    (FILE, "delete"): ("deleteFile", "Delete a file.", Deleted, None),
    (f"{FILE}/content", "get"): ("downloadFile", "Get the bytes of a file.", None, None),
    ("/v1/batches", "post"): ("createBatch", "Run a batch.", BatchObject, BatchRequest),
    ("/v1/batches", "get"): ("listBatches", "List batches.", BatchList, None),
    (BATCH, "get"): ("retrieveBatch", "Get a batch.", BatchObject, None),
    (f"{BATCH}/cancel", "post"): ("cancelBatch", "Cancel a batch.", BatchObject, None),
}


@cache
def description() -> bytes:
    """The document in OpenAPI 3.1: the same for everybody, as long as the process lives."""
    told_of = {each for *_, answer, body in OPERATIONS.values() for each in (answer, body)}
    types = told_of - {None, FORM}
    listed = [Error, *sorted(types, key=lambda each: str(each.__name__))]
    refs, components = components_of(listed)
    for schema in components.values():
        # More is taken than is named here; see `tolerant.py`.
        schema.pop("additionalProperties", None)
    form = {"type": "object", "properties": UPLOADED, "required": [*UPLOADED]}
    content: dict[Any, Any] = {None: BYTES, FORM: {FORM: {"schema": form}}}
    content |= {each: {JSON: {"schema": ref}} for each, ref in zip(listed, refs, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for (path, method), operation in OPERATIONS.items():
        paths.setdefault(path, {})[method] = _operation(path, *operation, content)
    told = {
        "openapi": "3.1.1",
        "info": {"title": "Sluice inference", "version": "1"},
        "security": [{"inferenceKey": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"inferenceKey": BEARER}},
    }
    return msgspec.json.encode(told)


def _operation(
    path: str, name: str, summary: str, answer: Any, body: Any, content: dict[Any, Any]
) -> dict[str, Any]:
    failed = {"description": "See `code`.", "content": content[Error]}
    streams = EVENTS if body and path.endswith(("completions", "messages", "responses")) else {}
    done = {"description": "Done.", "content": content[answer] | streams}
    at, query = re.findall(r"{(\w+)}", path), [*QUERY.items()][: QUERIES.get(name, 0)]
    parameters = [{"name": each, "in": "path", "required": True, "schema": TEXT} for each in at]
    parameters += [{"name": each, "in": "query", "schema": schema} for each, schema in query]
    parameters += [RETRY] if body not in (None, FORM) else []
    sent = {"requestBody": {"required": True, "content": content[body]}} if body else {}
    return sent | {
        "operationId": name,
        "summary": summary,
        "parameters": parameters,
        "responses": {"200": done, "4XX": failed, "5XX": failed},
    }
