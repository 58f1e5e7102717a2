"""A request's prompts as the nodes of a model take them."""

from __future__ import annotations

from functools import partial

import msgspec

from controlplane.gateway.app_state import AppState
from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.nodes.models import ServedModel
from controlplane.gateway.openai.upstream import request_json
from controlplane.gateway.refusal import Refusal, no_node
from controlplane.gateway.results import Asked
from controlplane.gateway.s3_tokenize.assemble import assemble
from controlplane.gateway.s3_tokenize.encode import ENCODE
from controlplane.gateway.s3_tokenize.tokenize import encode_ask
from controlplane.gateway.s3_tokenize.window import check_total
from controlplane.gateway.snapshot import ModelRecord
from controlplane.gateway.tasks.pictures import shown_pictures
from inference.contract.capabilities import Capability
from inference.contract.parts import ShownPicture


class Encoded(msgspec.Struct, frozen=True):
    """Prompts as the nodes of a model take them: token ids, or the request itself, with the ids as
    far as they are known here; `lengths` where there are several.
    """

    tokens: list[int]
    request_json: bytes = b""
    lengths: list[int] = []
    pictures: tuple[ShownPicture, ...] = ()


async def encode_for(
    call: Call, asked: Asked, served: ServedModel, model: ModelRecord, state: AppState
) -> Encoded:
    """Raises `Refusal`."""
    ask = assemble(call, asked.ask)
    pictures: tuple[ShownPicture, ...] = ()
    if asked.ask.pictures:
        ask = await shown_pictures(call, ask, asked, model, state)
        pictures = tuple(ShownPicture(jpeg=p.jpeg, tokens=p.tokens) for p in ask.pictures)
    window_tokens = min(model.context_window, served.context_window)
    salt = asked.project.salt
    if served.takes_text:
        body, tokens = request_json(ask), list[int]()
        if served.text is None and not (pictures or ask.prompts):
            tokens = await _told(call, ask, asked, served, body, state)
        elif served.text is not None and not (pictures or ask.prompts):
            try:
                tokens = await encode_ask(
                    call, ask, served.text, window_tokens=window_tokens, salt=salt
                )
            except Refusal as refusal:
                if refusal.code == "context_length_exceeded":
                    raise
                # What our copy of the template does not take, the server's own may.
        return Encoded(tokens, body, [0] * len(ask.prompts), pictures)
    if served.text is None:
        raise no_node(model.name)
    encode = partial(encode_ask, text=served.text, window_tokens=window_tokens, salt=salt)
    if not ask.prompts:
        return Encoded(await encode(call, ask))
    tokens, lengths = [], list[int]()
    for each in ask.singly():
        ids = await encode(call, each)
        tokens += ids
        lengths.append(len(ids))
        check_total(len(tokens))
    return Encoded(tokens, lengths=lengths)


async def _told(
    call: Call, ask: Ask, asked: Asked, served: ServedModel, body: bytes, state: AppState
) -> list[int]:
    """Ids by a server that has the tokenizer to itself; empty where it does not tell them."""
    if not served.can(Capability.TOKENIZES):
        return []
    if ask.tokens is not None:
        return list(ask.tokens)
    began = call.spans.clock()
    try:
        pools = asked.plan.pools(served.name)
        return await state.tokens.of(served, body, owner=asked.project.salt, pools=pools)
    finally:
        call.spans.add(ENCODE, began)
