"""Token ids of prompts by the server itself, where no folder has its model's tokenizer.

Whether a server tells them is tried once. What it told is held against what it then counts, since
ids that are not those it computes would be worse than none.
"""

import logging
from collections import OrderedDict
from hashlib import sha256
from typing import Any

import msgspec

from inference.contract.tokens import TOLD_IDS_MAX, pack_ids
from inference.engines.remote.kinds import ServerKind
from inference.engines.remote.server import Server

PATH, TEMPLATE_PATH = "/tokenize", "/apply-template"
# What of a chat is in its prompt.
CHAT_FIELDS = ("messages", "tools", "chat_template_kwargs")
SAMPLE = b'{"prompt":"a"}'
# Prompts that were told of and have not been computed yet.
TOLD_KEPT_MAX = 256
# In a row: then its path and its chats do not read prompts alike.
MISCOUNTS_MAX = 3

log = logging.getLogger(__name__)


class ServerTokens:
    """`tells` is false once the server has counted other numbers than it had told."""

    def __init__(self, server: Server, kind: ServerKind) -> None:
        self.tells = False
        self._server = server
        self._kind = kind
        self._told: OrderedDict[bytes, int] = OrderedDict()
        self._miscounts = 0

    async def try_out(self, model: str) -> bool:
        """Whether the server tells ids."""
        self.tells = bool(self._kind.tokenizes)
        self.tells = self.tells and bool(await self.ids(model, SAMPLE))
        return self.tells

    async def ids(self, model: str, request_json: bytes) -> bytes:
        """Packed ids of a prompt; none where the server does not tell them."""
        if not self.tells:
            return b""
        try:
            body = msgspec.json.decode(request_json, type=dict[str, Any])
            told = await self._ask(body, model)
            ids = pack_ids(told["tokens"] if len(told["tokens"]) <= TOLD_IDS_MAX else ())
        except (LookupError, TypeError, ValueError, OverflowError, RecursionError):
            return b""
        if request_json is not SAMPLE:
            self._told[sha256(request_json).digest()] = len(told["tokens"])
            if len(self._told) > TOLD_KEPT_MAX:
                self._told.popitem(last=False)
        return ids

    def counted(self, request_json: bytes, prompt_tokens: int) -> None:
        """The server has computed a prompt of so many tokens."""
        if not self._told:
            return
        told = self._told.pop(sha256(request_json).digest(), None)
        if told is None:
            return
        self._miscounts = 0 if told == prompt_tokens else self._miscounts + 1
        if self._miscounts == MISCOUNTS_MAX:
            self.tells = False
            log.error(
                "%s told %d tokens of a prompt that counts %d: it is not asked again",
                PATH, told, prompt_tokens,
            )  # fmt: skip

    async def _ask(self, body: dict[str, Any], model: str) -> dict[str, Any]:
        """Raises LookupError, TypeError where that cannot be asked."""
        takes, server = self._kind.tokenizes, self._server
        if "messages" not in body:
            if takes == "templates":
                return await server.told(PATH, _content(body["prompt"]))
            return await server.told(PATH, {"model": model, "prompt": body["prompt"]})
        if takes == "templates":
            return await server.told(
                PATH, _content((await server.told(TEMPLATE_PATH, body))["prompt"])
            )
        if takes == "prompts":
            return {"tokens": ()}
        return await server.told(PATH, {"model": model, **_chat(body)})


def _content(prompt: str) -> dict[str, Any]:
    """As llama.cpp reads prompts itself."""
    return {"content": prompt, "add_special": True, "parse_special": True}


def _chat(body: dict[str, Any]) -> dict[str, Any]:
    """What vLLM's path has no field for is a variable of the template in its chats, too."""
    chat = {name: body[name] for name in CHAT_FIELDS if name in body}
    if (effort := body.get("reasoning_effort")) is not None:
        switches = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
        chat["chat_template_kwargs"] = switches | chat.get("chat_template_kwargs", {})
    return chat
