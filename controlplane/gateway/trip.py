"""One request's way through the pipeline: what each stage has made so far. State, no decisions."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeVar

from controlplane.gateway.answer import Charge, Piece, Writer
from controlplane.gateway.call import Call
from controlplane.gateway.nodes.stream import JobStream
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.s1_admission.admit import Admitted, Asked
from controlplane.gateway.s2_balance.balance import Cluster
from controlplane.gateway.s3_tokenize.tokenize import Prompt
from controlplane.gateway.s4_route.node import Placement
from controlplane.gateway.s6_finish.finisher import Finisher
from controlplane.gateway.snapshot import KeyRecord
from controlplane.gateway.world import World
from inference.contract.frames import Usage

NOTHING = Usage(prompt_tokens=0, cached_tokens=0, completion_tokens=0)
Made = TypeVar("Made")


class Out(Protocol):
    """Where the answer goes: the ASGI side of one request."""

    started: bool

    async def refuse(self, refusal: Refusal, trip: Trip) -> None:
        """Answer with an error; as an event, without end mark, where a stream has begun."""

    async def event(self, data: bytes, trip: Trip) -> None:
        """Send events; the first call sends status and headers before them."""

    async def end(self, data: bytes, trip: Trip) -> None:
        """Send the last bytes: the end of a stream, or the whole body."""


class Trip:
    """What one request has gathered; None where a stage has not run."""

    def __init__(self, call: Call, world: World, out: Out) -> None:
        self.call = call
        self.world = world
        self.out = out
        self.key: KeyRecord | None = None
        self.asked: Asked | None = None
        self.admitted: Admitted | None = None
        self.cluster: Cluster | None = None
        self.tokens: list[int] | None = None
        self.prompt: Prompt | None = None
        self.placement: Placement | None = None
        self.stream: JobStream | None = None
        self.finisher: Finisher | None = None
        self.writer: Writer | None = None
        self.pieces: dict[int, Piece] = {}
        self.charge: Charge | None = None
        self.refusal: Refusal | None = None
        self.failed_whole = False
        self.watcher: asyncio.Task[None] | None = None
        self.resolved = False
        self.ended = False

    def usage(self) -> Usage:
        """What is billed: tokens that were generated, up to where this gateway ended a choice.

        Nothing, when nothing reached the client: no token came, or a whole answer failed.
        """
        stream, finisher = self.stream, self.finisher
        if stream is None or finisher is None or not stream.usage.completion_tokens:
            return NOTHING
        if self.failed_whole and not self.call.gone:
            return NOTHING
        completion = stream.usage.completion_tokens
        if finisher.was_cut:
            completion -= stream.completion_tokens - finisher.cut_tokens
        prompt_tokens = len(made(self.tokens))
        return Usage(
            prompt_tokens=prompt_tokens,
            cached_tokens=min(stream.usage.cached_tokens, prompt_tokens),
            completion_tokens=completion,
        )


def made(value: Made | None) -> Made:
    """A result that an earlier stage must have left; its absence is a bug in the pipeline."""
    if value is None:
        raise AssertionError("a stage ran before the one that it needs")
    return value
