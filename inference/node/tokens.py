"""Token ids of prompts for gateways, by an engine whose server tells them."""

from inference.contract.tokens import Tokenize, Tokens
from inference.engines.base import Engine, TellsTokens
from inference.node.link import GatewayLink


async def tell_tokens(engine: Engine, link: GatewayLink, asked: Tokenize) -> None:
    """Answer a gateway in any case: it waits."""
    ids = b""
    if isinstance(engine, TellsTokens):
        ids = await engine.token_ids(asked.model, asked.request_json)
    link.send(Tokens(number=asked.number, ids=ids))
