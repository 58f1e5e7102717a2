"""The requests that are measured: each shape of the API, and what the control gets instead."""

from __future__ import annotations

from benchmarks.control import PACED_PATH
from benchmarks.load import Work, request_bytes

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
EMBEDDINGS = "/v1/embeddings"
MODEL = "sluice-5m"
EMBED_MODEL = "all-minilm-l6-v2"
PROMPT = "Which hotel has a pool and costs less than 100 dollars a night?"
TOKENS = 20
# What the control is asked with; it looks at no key.
NOBODY = "none"


def chat(key: str) -> Work:
    """A question of about 20 tokens, answered whole with as many."""
    return _whole(CHAT, key, _chat(TOKENS, stream=False))


def completion(key: str) -> Work:
    """The same as a text to go on with."""
    return _whole(
        COMPLETIONS, key, {"model": MODEL, "prompt": PROMPT, "max_tokens": TOKENS, "stream": False}
    )


def response(key: str) -> Work:
    """The chat in the shape of OpenAI's responses."""
    return _whole(RESPONSES, key, _response(TOKENS, stream=False))


def message(key: str) -> Work:
    """The chat in the shape of Anthropic's messages."""
    return _whole(MESSAGES, key, _chat(TOKENS, stream=False))


def embedding(key: str) -> Work:
    """The same to be embedded, its vector as JSON numbers."""
    return _whole(EMBEDDINGS, key, {"model": EMBED_MODEL, "input": PROMPT})


def streamed(key: str, tokens: int = TOKENS, path: str = CHAT) -> Work:
    """The chat in the shape of a path, answered as a stream of so many tokens."""
    body = (_response if path == RESPONSES else _chat)(tokens, stream=True)
    request = request_bytes(path, key, body)
    return lambda connection, tally: connection.ask(request, tally)


def paced_events(tokens: int) -> Work:
    """The control's stream of so many fixed events."""
    request = request_bytes(f"{PACED_PATH}{tokens}", NOBODY, _chat(tokens, stream=True))
    return lambda connection, tally: connection.ask(request, tally)


def _chat(tokens: int, *, stream: bool) -> dict[str, object]:
    messages = [{"role": "user", "content": PROMPT}]
    return {"model": MODEL, "messages": messages, "max_tokens": tokens, "stream": stream}


def _response(tokens: int, *, stream: bool) -> dict[str, object]:
    return {"model": MODEL, "input": PROMPT, "max_output_tokens": tokens, "stream": stream}


def _whole(path: str, key: str, body: dict[str, object]) -> Work:
    request = request_bytes(path, key, body)
    return lambda connection, tally: connection.ask(request, tally)
