"""Paths that are answered without a node: tokens in vLLM's shape, moderations in OpenAI's.

Requests are counted against the limits; nothing is held, charged or recorded.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from controlplane.gateway.app_state import AppState
from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.http.exchange import Exchange
from controlplane.gateway.nodes.models import ServedModel
from controlplane.gateway.openai.chat import MESSAGES_MAX, Message, TextPart, turns_of
from controlplane.gateway.openai.fields import Name
from controlplane.gateway.openai.parse import VALUES_MAX, parse_body
from controlplane.gateway.openai.tools import Tools, offered
from controlplane.gateway.openai.upstream import request_json
from controlplane.gateway.refusal import NO_RETRY, Refusal, bad_field, no_node, unavailable
from controlplane.gateway.results import Asked
from controlplane.gateway.s1_admission.admit import read_ask
from controlplane.gateway.s1_admission.authenticate import authenticate, check_scopes
from controlplane.gateway.s1_admission.body import LimitsCheck, read_body
from controlplane.gateway.s1_admission.limits import check_requests, limit_lines, take_limits
from controlplane.gateway.s3_tokenize.encode import given_ids
from controlplane.gateway.s3_tokenize.tokenize import encode_ask
from controlplane.gateway.s6_finish.safety import ABUSE_SCORE_MIN, CLASSIFY_CHARS
from controlplane.gateway.snapshot import KeyRecord
from inference.contract.capabilities import Capability
from inference.text.model_text import ModelText

# Of OpenAI's API, by how their paths begin.
NOT_OFFERED = (
    "/v1/assistants", "/v1/audio", "/v1/images", "/v1/realtime", "/v1/threads", "/v1/vector_stores",
    "/v1/videos",
)  # fmt: skip
TEXTS_MAX = 32
TEXT_CHARS_MAX = 16_384
# A classifier that nobody has asked for a while takes seconds to start.
ANSWER_S_MAX = 20.0
AGAIN_S = 0.5
RETRY_S = 5
# The one classifier, whatever model a client names, and all that it knows of OpenAI's categories.
MODERATOR, KNOWN = "sluice-safety", "harassment"
CATEGORIES = (
    KNOWN, "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent",
    "self-harm", "self-harm/instructions", "self-harm/intent", "sexual", "sexual/minors",
    "violence", "violence/graphic",
)  # fmt: skip
# As long as the safety layer's, up to a blank where there is one, so that no word is cut.
_PASSAGE = re.compile(rf"\S.{{0,{CLASSIFY_CHARS - 2}}}\S(?!\S)|\S{{1,{CLASSIFY_CHARS}}}", re.DOTALL)


class TokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A prompt, with special tokens unless refused, or messages, whose template writes its own."""

    model: Name
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MESSAGES_MAX)] | None = None
    tools: Tools | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenList(msgspec.Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | UnsetType = UNSET


class DetokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    model: Name
    tokens: Annotated[list[int], Meta(max_length=VALUES_MAX)]


class Detokenized(msgspec.Struct):
    prompt: str


class ModerationRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A text, several, or one in parts."""

    input: str | Annotated[list[str | TextPart], Meta(min_length=1, max_length=TEXTS_MAX)]
    model: str | None = None


class ModerationList(msgspec.Struct):
    """Of `results` each has `flagged`, and by OpenAI's names `categories` and `category_scores`."""

    id: str
    model: str
    results: list[dict[str, Any]]


# The endpoint's name in the scopes of keys, and what makes the body of the answer.
Extra = tuple[str, Callable[[Call, Exchange, AppState, KeyRecord], Awaitable[bytes]]]
_tokenize = msgspec.json.Decoder(TokenizeRequest)
_detokenize = msgspec.json.Decoder(DetokenizeRequest)
_moderate = msgspec.json.Decoder(ModerationRequest)


async def answer_extra(
    exchange: Exchange, call: Call, state: AppState, extra: Extra
) -> tuple[bytes, list[str]]:
    """The body, and the headers of the limits; raises `Refusal`, `ClientGone`."""
    endpoint, answer = extra
    key = authenticate(call, state.keys)
    check_scopes(call, key, endpoint, state.places)
    allowance = await take_limits(call, key, state.limiter, tokens=0)
    try:
        return await answer(call, exchange, state, key), limit_lines(allowance)
    finally:
        state.limiter.release(allowance)


def unknown(path: str, method: str) -> Refusal:
    """404: no such path, or one that this installation has no models for."""
    if path.startswith(NOT_OFFERED):
        message = f"This installation does not offer {path}."
        return Refusal(404, "unsupported_endpoint", message, headers=NO_RETRY)
    message = f"Unknown request URL: {method} {path}."
    return Refusal(404, "unknown_url", message, headers=NO_RETRY)


async def tokenize(call: Call, exchange: Exchange, state: AppState, key: KeyRecord) -> bytes:
    """Token ids of a prompt; raises `Refusal`, also where it is far beyond the window."""
    asked = await read_ask(call, exchange, _parse_prompt, state, key=key)
    if told := await _told(asked, state):
        return msgspec.json.encode(told)
    text, window = _reader(asked, state)
    salt = asked.project.salt
    tokens = await encode_ask(call, asked.ask, text, window_tokens=window, salt=salt)

    def shown(tokens: list[int]) -> bytes:
        strs = [text.token_text(token)[0] for token in tokens] if asked.ask.shows_texts else UNSET
        return msgspec.json.encode(TokenList(len(tokens), window, tokens, strs))

    return await state.offload.run(shown, tokens, tenant=key.organization)


async def detokenize(call: Call, exchange: Exchange, state: AppState, key: KeyRecord) -> bytes:
    """The text of token ids; raises `Refusal`."""
    asked = await read_ask(call, exchange, _parse_ids, state, key=key)
    text, _ = _reader(asked, state)
    ids = given_ids(call, asked.ask, text)
    prompt = await state.offload.run(text.decode, ids, tenant=key.organization)
    return msgspec.json.encode(Detokenized(prompt))


async def moderate(call: Call, exchange: Exchange, state: AppState, key: KeyRecord) -> bytes:
    """What the classifier of the safety layer says of texts; raises `Refusal`.

    Screened answers need the classifier, too, so each request has one passage there at a time.
    """
    portion = state.bodies.portion(key.organization)
    try:
        check = LimitsCheck(partial(check_requests, key, state.limiter))
        body = await read_body(call, exchange, portion, check, seconds_max=state.body_s)
        texts = await state.offload.run(_parse_texts, body, tenant=key.organization)
    finally:
        portion.free()
    if state.moderations.locked():
        message = "Too many moderations are in progress. Try again in 1 s."
        raise unavailable("server_is_overloaded", message, retry_after_s=1)
    try:
        async with state.moderations, asyncio.timeout(ANSWER_S_MAX):
            results = [await _judged(text, state) for text in texts]
    except TimeoutError as error:
        message = f"The classifier did not answer. Try again in {RETRY_S} s."
        raise unavailable("classifier_unavailable", message, retry_after_s=RETRY_S) from error
    return msgspec.json.encode(ModerationList(f"modr-{call.request.hex()}", MODERATOR, results))


EXTRAS: dict[str, Extra] = {
    "/v1/moderations": ("moderations", moderate),
    **dict.fromkeys(("/v1/tokenize", "/tokenize"), ("tokenize", tokenize)),
    **dict.fromkeys(("/v1/detokenize", "/detokenize"), ("tokenize", detokenize)),
}


def _parse_prompt(data: bytes) -> Ask:
    request, left = parse_body(data, _tokenize)
    if (request.prompt is None) == (request.messages is None):
        raise bad_field("prompt", "Send either 'prompt' or 'messages'.")
    special = request.add_special_tokens
    turns = turns_of(request.messages or [])
    if shown := next(filter(None, (turn.pictures for turn in turns)), None):
        raise bad_field(shown[0].field, "Images cannot be tokenized here.")
    return Ask(
        operation="tokenize",
        model=request.model,
        bytes=len(data),
        text=request.prompt,
        turns=turns,
        tools=offered(request.tools, None),
        special=request.messages is None if special is None else special,
        shows_texts=bool(request.return_token_strs),
        **left._asdict(),
    )


def _parse_ids(data: bytes) -> Ask:
    request, left = parse_body(data, _detokenize)
    ids = tuple(request.tokens)
    return Ask(
        operation="detokenize", model=request.model, bytes=len(data), tokens=ids, **left._asdict()
    )


def _parse_texts(data: bytes) -> list[str]:
    given = parse_body(data, _moderate)[0].input
    items = [given] if isinstance(given, str) else given
    texts = [each if isinstance(each, str) else each.text for each in items]
    if any(isinstance(each, TextPart) for each in items):
        texts = ["\n".join(texts)]
    if max(map(len, texts)) > TEXT_CHARS_MAX:
        raise bad_field("input", f"A text in 'input' has more than {TEXT_CHARS_MAX} characters.")
    return texts


async def _told(asked: Asked, state: AppState) -> TokenList | None:
    """By the server that has the tokenizer to itself; None where it does not tell that."""
    ask, (served, window) = asked.ask, _served(asked, state)
    usual = ask.special == (ask.text is not None) and not ask.shows_texts
    if served.text is not None or not served.can(Capability.TOKENIZES) or not usual:
        return None
    whole = msgspec.structs.replace(ask, passed={"tools": ask.tools} if ask.tools else {})
    pools = asked.plan.pools(served.name)
    body, owner = request_json(whole), asked.project.salt
    ids = await state.tokens.of(served, body, owner=owner, pools=pools)
    return TokenList(len(ids), window, ids) if ids else None


def _served(asked: Asked, state: AppState) -> tuple[ServedModel, int]:
    """The model that the request would go to first, and its window."""
    model = asked.plan.steps[0].model
    served = state.fleet.models().get(model.name)
    if served is None:
        raise no_node(model.name)
    return served, min(model.context_window, served.context_window)


def _reader(asked: Asked, state: AppState) -> tuple[ModelText, int]:
    """The tokenizer and window of the same; raises `Refusal` where it has none here."""
    served, window = _served(asked, state)
    if served.text is None:
        message = f"'{asked.ask.model}' is served by a server that has the tokenizer to itself."
        raise bad_field("model", message, "model_task_mismatch")
    return served.text, window


async def _judged(text: str, state: AppState) -> dict[str, Any]:
    """As its worst passage is; other categories than the known one are never found."""
    score = max([await _score(each, state) for each in _PASSAGE.findall(text)], default=0.0)
    flagged = score >= ABUSE_SCORE_MIN
    return {
        "flagged": flagged,
        "categories": dict.fromkeys(CATEGORIES, False) | {KNOWN: flagged},
        "category_scores": dict.fromkeys(CATEGORIES, 0.0) | {KNOWN: score},
        "category_applied_input_types": {name: ["text"] * (name == KNOWN) for name in CATEGORIES},
    }


async def _score(passage: str, state: AppState) -> float:
    """Asked again while the classifier starts, until the request's time is over."""
    while True:
        with suppress(TimeoutError):
            return await state.safety.score(passage)
        await asyncio.sleep(AGAIN_S)
