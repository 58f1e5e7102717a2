"""What stands behind placeholders, put back into an answer however it is cut into pieces."""

from collections.abc import Mapping

import msgspec

from controlplane.gateway.answer import Piece
from controlplane.gateway.policies.masks import PLACEHOLDER, escapes
from inference.contract.parts import ToolCallDelta

OPENS = "["


class TextRestorer:
    """One text as it comes: what may yet become a placeholder is held until that is known."""

    __slots__ = ("_held", "_values")

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self._held = ""

    def feed(self, text: str) -> str:
        if not (self._held or OPENS in text):
            return text
        text = self._held + text
        last = text.rfind(OPENS)
        tail = text[last:]
        self._held = ""
        if last >= 0 and any(each.startswith(tail) and each != tail for each in self._values):
            text, self._held = text[:last], tail
        return PLACEHOLDER.sub(lambda found: self._values.get(found[0], found[0]), text)

    def close(self) -> str:
        """What was held and became nothing."""
        rest, self._held = self._held, ""
        return rest


class Restorer:
    """All choices of one answer. In arguments of calls, and where the text is `in_json`, what is
    put back is written as JSON writes it.
    """

    def __init__(self, values: dict[str, str], *, in_json: bool) -> None:
        self._escaped = escapes(values)
        self._values = self._escaped if in_json else values
        self._plain = values
        self._texts: dict[tuple[int, str], TextRestorer] = {}
        self._calling: dict[int, tuple[int, TextRestorer]] = {}

    def restored(self, pieces: list[Piece]) -> list[Piece]:
        """The pieces as the client sees them."""
        return [self._piece(piece) for piece in pieces]

    def _piece(self, piece: Piece) -> Piece:
        ends = piece.finish is not None
        thoughts = self._text(piece.choice, "thoughts", self._plain)
        said = self._text(piece.choice, "text", self._values)
        reasoning = thoughts.feed(piece.reasoning)
        if piece.text or piece.calls or ends:
            reasoning += thoughts.close()
        text = said.feed(piece.text)
        if piece.calls or ends:
            text += said.close()
        calls = self._calls(piece, ends=ends)
        return msgspec.structs.replace(piece, reasoning=reasoning, text=text, calls=calls)

    def _text(self, choice: int, name: str, values: Mapping[str, str]) -> TextRestorer:
        return self._texts.setdefault((choice, name), TextRestorer(values))

    def _calls(self, piece: Piece, *, ends: bool) -> list[ToolCallDelta]:
        made: list[ToolCallDelta] = []
        for call in piece.calls:
            index, arguments = self._calling.get(piece.choice, (-1, TextRestorer(self._escaped)))
            if index != call.index:
                made += self._rest(piece.choice)
                arguments = TextRestorer(self._escaped)
                self._calling[piece.choice] = call.index, arguments
            restored = arguments.feed(call.arguments)
            if restored or call.id is not None:
                made.append(msgspec.structs.replace(call, arguments=restored))
        return [*made, *self._rest(piece.choice)] if ends else made

    def _rest(self, choice: int) -> list[ToolCallDelta]:
        """What is held of the arguments under way."""
        index, arguments = self._calling.pop(choice, (0, TextRestorer({})))
        rest = arguments.close()
        return [ToolCallDelta(index=index, arguments=rest)] if rest else []
