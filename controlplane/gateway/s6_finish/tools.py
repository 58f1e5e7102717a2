"""Tool calls out of the text of one choice, as it comes; what is no call goes on as text.

The grammar holds the model to the form (`toolform.py`). A call that the output's length cuts off
leaves as far as it came.
"""

import re
from dataclasses import dataclass

from controlplane.gateway.toolform import CLOSE, HEAD, MIDDLE, OPEN, TAIL
from inference.contract.parts import ToolCallDelta

# From the tag to the arguments, with the blanks that a model may put in.
HEADER = re.compile(r'\s*\{\s*"name"\s*:\s*"([a-zA-Z0-9_-]{1,64})"\s*,\s*"arguments"\s*:\s*(?=\S)')
HEADER_CHARS_MAX = 256


class CallFinder:
    """One choice's text in, text and pieces of calls out. `complete` counts whole calls."""

    __slots__ = ("_depth", "_escaped", "_held", "_id", "_index", "_quoted", "_state", "complete")

    def __init__(self, id_prefix: str) -> None:
        self._id = id_prefix
        self._held = ""
        self._state = self._in_text
        self._index = -1
        self._depth = 0
        self._quoted = self._escaped = False
        self.complete = 0

    def feed(self, text: str) -> tuple[str, list[ToolCallDelta]]:
        self._held += text
        shown: list[str] = []
        calls: list[ToolCallDelta] = []
        while self._held and self._state(shown, calls):
            pass
        return "".join(shown), calls

    def close(self, *, cut: bool) -> str:
        """The end: text that might have become a call and did not. After a call it would have.

        Where nothing was `cut` off, a tag without a call was text, too.
        """
        rest = self._held if self._state == self._in_text and self._index < 0 else ""
        if self._state == self._in_header and not cut:
            rest = OPEN + self._held
        self._held = ""
        return rest

    def _in_text(self, shown: list[str], calls: list[ToolCallDelta]) -> bool:
        place = self._held.find(OPEN)
        end = len(self._held) - _possible_start(self._held) if place < 0 else place
        text, self._held = self._held[:end], self._held[end:]
        # Between calls there are line ends that belong to nobody.
        if self._index < 0 or text.strip():
            shown.append(text)
        if place < 0:
            return False
        self._held = self._held[len(OPEN) :]
        self._state = self._in_header
        return True

    def _in_header(self, shown: list[str], calls: list[ToolCallDelta]) -> bool:
        found = HEADER.match(self._held)
        if found is None:
            if len(self._held) < HEADER_CHARS_MAX:
                return False
            shown.append(OPEN)
            self._state = self._in_text
            return True
        self._held = self._held[found.end() :]
        self._index += 1
        self._depth, self._quoted, self._escaped = 0, False, False
        self._state = self._in_arguments
        call_id = f"{self._id}_{self._index}"
        calls.append(ToolCallDelta(index=self._index, id=call_id, name=found[1]))
        return True

    def _in_arguments(self, shown: list[str], calls: list[ToolCallDelta]) -> bool:
        end = self._arguments_end()
        part, self._held = self._held[:end], self._held[end:]
        calls.append(ToolCallDelta(index=self._index, arguments=part))
        if self._depth:
            return False
        self._state = self._in_tail
        return True

    def _in_tail(self, shown: list[str], calls: list[ToolCallDelta]) -> bool:
        place = self._held.find(CLOSE)
        if place < 0:
            return False
        self._held = self._held[place + len(CLOSE) :]
        self.complete += 1
        self._state = self._in_text
        return True

    def _arguments_end(self) -> int:
        """How much of what is held belongs to the object of arguments."""
        for place, char in enumerate(self._held):
            if self._quoted:
                if self._escaped:
                    self._escaped = False
                elif char == "\\":
                    self._escaped = True
                elif char == '"':
                    self._quoted = False
            elif char == '"':
                self._quoted = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if not self._depth:
                    return place + 1
        return len(self._held)


@dataclass(slots=True, eq=False, repr=False)
class CallSpeller:
    """The other way round: calls that an engine has parsed itself, as text, so that everything
    which looks at text sees them too.
    """

    _index: int = -1
    _bare: bool = False

    def feed(self, calls: list[ToolCallDelta]) -> str:
        parts = []
        for call in calls:
            if call.index != self._index:
                parts.append(self.close())
                parts.append(f"{OPEN}{HEAD}{call.name or ''}{MIDDLE}")
                self._index, self._bare = call.index, True
            if call.arguments:
                self._bare = False
                parts.append(call.arguments)
        return "".join(parts)

    def close(self) -> str:
        """What ends the call under way; some servers send nothing for no arguments."""
        if self._index < 0:
            return ""
        self._index = -1
        return ("{}" if self._bare else "") + TAIL


def _possible_start(text: str) -> int:
    """Length of the longest end of `text` that could be the start of a tag."""
    for length in range(min(len(text), len(OPEN) - 1), 0, -1):
        if OPEN.startswith(text[-length:]):
            return length
    return 0
