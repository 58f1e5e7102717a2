"""What an API shape is: a path, the functions at its two edges, and how its clients read errors."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from controlplane.gateway.app_state import AppState
from controlplane.gateway.ask import Ask, Operation
from controlplane.gateway.call import Call
from controlplane.gateway.http.exchange import Incoming
from controlplane.gateway.ports import Room
from controlplane.gateway.progress import Out, Progress
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.results import Asked
from controlplane.gateway.snapshot import KeyRecord
from controlplane.gateway.task import RequestTask


class Dialect(Protocol):
    """What the clients of one API expect around an answer; `request` is its public id."""

    def lines(self, request: str, rooms: tuple[Room, ...]) -> list[str]:
        """Headers of its own on every answer, as `name: value`; `rooms` are those of limits."""

    def error_body(self, refusal: Refusal, request: str) -> bytes:
        """A failure before anything was sent."""

    def error_event(self, refusal: Refusal, request: str) -> bytes:
        """A failure that ends a stream."""


class Keeper(Protocol):
    """What one request has to do with those that were kept before it, and what is kept of it."""

    async def read(self, exchange: Incoming, key: KeyRecord) -> Asked:
        """The request behind what was said before it; raises `Refusal`."""

    async def admitted(self, out: Out) -> None:
        """Before it runs: let the client go, where it does not wait; raises `Refusal`."""

    async def completed(self, last: bytes) -> bytes:
        """It is charged: keep it. Returns the last bytes, which say where it is not."""

    def left(self) -> None:
        """It has ended, in whatever way."""


class ApiShape(msgspec.Struct, frozen=True):
    """One endpoint of an API; `endpoint` is its name in the scopes of keys.

    Answers are kept by `keeping`, where clients may ask for them again.
    """

    endpoint: str
    operation: Operation
    parse: Callable[[bytes], Ask]
    task: Callable[[Call, Asked, AppState], RequestTask]
    keeping: Callable[[Progress], Keeper] | None = None
