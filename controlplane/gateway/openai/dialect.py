"""How OpenAI's clients read errors."""

import msgspec

from controlplane.gateway.ports import Room
from controlplane.gateway.refusal import Refusal


class OpenAIDialect:
    """A `shape.Dialect`: the error of `Refusal` as it is."""

    def lines(self, request: str, rooms: tuple[Room, ...]) -> list[str]:
        return []

    def error_body(self, refusal: Refusal, request: str) -> bytes:
        return msgspec.json.encode(refusal.body)

    def error_event(self, refusal: Refusal, request: str) -> bytes:
        """An error, and no end mark after it."""
        return b"data: " + msgspec.json.encode(refusal.body) + b"\n\n"
