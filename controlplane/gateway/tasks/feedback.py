"""`POST /v1/requests/{request}/feedback`: what its reader thinks of an answer.

It is kept with the request. After a thumbs-down the next request of the same conversation goes to
a larger size class, where its rule has such.
"""

import asyncio
import re
from functools import partial
from typing import Literal

import msgspec

from controlplane.gateway.app_state import AppState
from controlplane.gateway.call import Call
from controlplane.gateway.http.exchange import Exchange
from controlplane.gateway.openai.fields import KeptText
from controlplane.gateway.openai.parse import parse_body
from controlplane.gateway.ports_contents import ContentsAway, Rated
from controlplane.gateway.refusal import NO_RETRY, Refusal, unavailable
from controlplane.gateway.s1_admission.authenticate import authenticate
from controlplane.gateway.s1_admission.body import LimitsCheck, read_body
from controlplane.gateway.s1_admission.limits import check_requests
from controlplane.gateway.sizing import RATING_WITHIN_S
from controlplane.gateway.snapshot import KeyRecord
from controlplane.gateway.tasks.extras import answer_extra
from controlplane.kernel.ids import REQUEST, public_request, uuid_of
from controlplane.kernel.keys.scopes import READ_ENDPOINTS
from controlplane.kernel.receipt import read_receipt

FEEDBACK = re.compile(r"/v1/requests/([^/]{1,64})/feedback")
CHAT = "chat"
RATINGS = {"up": 1, "down": -1}
# A request is recorded a moment after its answer.
TRIES, PAUSE_S = 5, 0.2
RETRY_S = 1


class FeedbackRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Thumbs up or down, and why; what is sent again replaces what was sent before."""

    rating: Literal["up", "down"]
    comment: KeptText | None = None


class FeedbackObject(msgspec.Struct, kw_only=True):
    """What is kept with the request `id`."""

    id: str
    object: Literal["feedback"] = "feedback"
    rating: Literal["up", "down"]
    comment: str


_decoder = msgspec.json.Decoder(FeedbackRequest)


async def answer_feedback(
    exchange: Exchange, call: Call, state: AppState, named: str
) -> tuple[bytes, list[str]]:
    """The body, and headers; raises `Refusal`. Keys that may ask may rate, too."""
    key = authenticate(call, state.keys)
    asking = sorted((key.endpoints or {CHAT}) - set(READ_ENDPOINTS))
    extra = (asking or [CHAT])[0], partial(_rate, named)
    body, lines = await answer_extra(exchange, call, state, extra)
    return body, ["cache-control: no-store", *lines]


async def _rate(
    named: str, call: Call, exchange: Exchange, state: AppState, key: KeyRecord
) -> bytes:
    portion = state.bodies.portion(key.organization)
    try:
        check = LimitsCheck(partial(check_requests, key, state.limiter))
        body = await read_body(call, exchange, portion, check, seconds_max=state.body_s)
        given, _ = parse_body(body, _decoder)
    finally:
        portion.free()
    request = _request_of(named)
    rating, comment = RATINGS[given.rating], given.comment or ""
    rated = await _kept(state, key.project, request, rating, comment)
    size = read_receipt(rated.receipt).size
    if rated.changed and size is not None and size.conversation:
        conversation = bytes.fromhex(size.conversation)
        if rating < 0:
            state.sizes.note(conversation, size.served, RATING_WITHIN_S)
        else:
            state.sizes.forget(conversation)
    told = FeedbackObject(id=public_request(request), rating=given.rating, comment=comment)
    return msgspec.json.encode(told)


async def _kept(state: AppState, project: str, request: bytes, rating: int, comment: str) -> Rated:
    """The request with its rating; raises `Refusal` (404, 503)."""
    for pause_s in (*[PAUSE_S] * (TRIES - 1), 0.0):
        try:
            rated = await state.contents.rate(project, request, rating, comment)
        except ContentsAway as error:
            message = "Feedback cannot be kept at the moment. Try again shortly."
            raise unavailable("contents_unavailable", message, retry_after_s=RETRY_S) from error
        if rated is not None:
            return rated
        await asyncio.sleep(pause_s)
    raise _unknown(public_request(request))


def _request_of(named: str) -> bytes:
    try:
        return uuid_of(named, REQUEST).bytes
    except ValueError as error:
        raise _unknown(named) from error


def _unknown(named: str) -> Refusal:
    message = f"The request '{named}' does not exist, or this key does not have access to it."
    return Refusal(404, "request_not_found", message, param="request", headers=NO_RETRY)
