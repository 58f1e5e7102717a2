"""Token ids of prompts whose tokenizer only the servers behind nodes have: asked of a node, and
kept for a while. Where none are told in time, a prompt is estimated.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection
from hashlib import sha256
from typing import TYPE_CHECKING

from controlplane.gateway.nodes.checks import COUNTER_MAX, VOCAB_SIZE_MAX
from controlplane.gateway.nodes.host import BadClaim
from controlplane.gateway.nodes.measured.times import Bound, LearnedBound
from controlplane.kernel.clock import monotonic_s
from inference.contract.capabilities import Capability
from inference.contract.codec import encode
from inference.contract.tokens import ID_BYTES, TOLD_IDS_MAX, Tokenize, Tokens, unpack_ids

if TYPE_CHECKING:
    from controlplane.gateway.nodes.link import NodeLink
    from controlplane.gateway.nodes.models import ServedModel

# A node that was late is not asked again for a while.
REST_S = 10.0
# Of one node, unanswered.
ASKED_MAX = 64
# A server may be replaced by another under the same name.
KEPT_S = 600.0
KEPT_BYTES_MAX = 16 * 1024 * 1024
# What an entry takes beside its ids: most prompts are short.
ENTRY_BYTES = 400
NUMBER_BITS = 48


class TokenQuestions:
    """What one node was asked and has not answered yet."""

    def __init__(self, send: Callable[[bytes], None], bound: Bound) -> None:
        self._send = send
        self._bound = LearnedBound(bound)
        # A node may still answer what an earlier link asked: that must find no question here.
        self._number = secrets.randbits(NUMBER_BITS)
        self._open: dict[int, asyncio.Future[bytes]] = {}
        self._rests_until_s = 0.0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def allowed(self) -> bool:
        """Whether another may be asked now."""
        return len(self._open) < ASKED_MAX and monotonic_s() >= self._rests_until_s

    async def ask(self, model: str, request_json: bytes) -> bytes:
        """The ids, packed; none where the server does not tell them, or not in time."""
        self._number += 1
        number = self._number
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        began_s = monotonic_s()
        self._send(encode(Tokenize(number=number, model=model, request_json=request_json)))
        try:
            async with asyncio.timeout(self._bound.seconds):
                return await answer
        except TimeoutError:
            self._rests_until_s = monotonic_s() + REST_S
            return b""
        finally:
            self._bound.took(monotonic_s() - began_s)
            self._open.pop(number, None)

    def answered(self, frame: Tokens) -> None:
        """Raises `BadClaim`; what comes too late, or was asked over another link, is dropped."""
        if not 0 <= frame.number <= COUNTER_MAX:
            raise BadClaim(f"tokens.number: {frame.number} is not in 0..{COUNTER_MAX}")
        answer = self._open.get(frame.number)
        if answer is None or answer.done():
            return
        if len(frame.ids) % ID_BYTES or len(frame.ids) > ID_BYTES * TOLD_IDS_MAX:
            raise BadClaim(f"tokens.ids: {len(frame.ids)} bytes")
        if max(unpack_ids(frame.ids), default=0) >= VOCAB_SIZE_MAX:
            raise BadClaim("tokens.ids: an id that no vocabulary has")
        answer.set_result(frame.ids)

    def end(self) -> None:
        """The link is over: nothing more is told."""
        for answer in self._open.values():
            if not answer.done():
                answer.set_result(b"")


class ToldTokens:
    """Ids by prompt; those of a tenant's prompts are found by that tenant alone."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()
        self._bytes = 0

    async def of(
        self, served: ServedModel, request_json: bytes, *, owner: bytes, pools: Collection[str]
    ) -> list[int]:
        """Those of a request for the model; empty where no node of these pools tells them now.

        No other pool's node may see what `owner` asks.
        """
        name = f"{served.name}\0".encode()
        key = sha256(name + len(owner).to_bytes(1) + owner + request_json).digest()
        kept_s, ids = self._kept.get(key, (0.0, b""))
        if ids and monotonic_s() - kept_s < KEPT_S:
            self._kept.move_to_end(key)
            return unpack_ids(ids)
        link = _least_busy(served, pools)
        if link is None:
            return []
        ids = await link.questions.ask(served.name, request_json)
        if ids:
            self._keep(key, ids)
        return unpack_ids(ids)

    def _keep(self, key: bytes, ids: bytes) -> None:
        self._drop(key)
        self._kept[key] = monotonic_s(), ids
        self._bytes += len(ids) + ENTRY_BYTES
        while self._bytes > KEPT_BYTES_MAX:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: bytes) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._bytes -= len(kept[1]) + ENTRY_BYTES


def _least_busy(served: ServedModel, pools: Collection[str]) -> NodeLink | None:
    able = [
        link
        for link in served.nodes
        if Capability.TOKENIZES in link.abilities
        and link.hello.pool in pools
        and link.questions.allowed
    ]
    return min(able, key=lambda link: (len(link.questions), len(link.jobs)), default=None)
