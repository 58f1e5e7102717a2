"""Tool calls out of the text of one choice, as it comes; what is no call goes on as text.

The grammar holds the model to the form (`toolform.py`). A call that the output's length cuts off
leaves as far as it came.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from inference.contract.parts import ToolCallDelta
from inference.text.families import HERMES, CallForm, is_text

# From a tag to the arguments, with the blanks that a model may put in.
HEADER_CHARS_MAX = 256
NO_SCHEMA: Mapping[str, Any] = {}


class CallFinder:
    """One choice's text in, text and pieces of calls out. `complete` counts whole calls."""

    __slots__ = (
        "_depth", "_escaped", "_form", "_held", "_id", "_index", "_quoted", "_said", "_schema",
        "_state", "_tag", "_tools", "_written", "complete",
    )  # fmt: skip

    def __init__(
        self, id_prefix: str, form: CallForm = HERMES, tools: Iterable[dict[str, Any]] = ()
    ) -> None:
        self._id = id_prefix
        self._form = form
        self._tools = tools
        self._held = self._tag = ""
        self._state = self._in_text
        self._index = -1
        self._depth = self._written = 0
        self._quoted = self._escaped = self._said = False
        self._schema = NO_SCHEMA
        self.complete = 0

    @property
    def begun(self) -> int:
        """Calls of which at least the name is known."""
        return self._index + 1

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
        if self._state == self._in_header and (not cut or self._form.bare):
            rest = self._held
        self._held = ""
        return rest

    def _in_text(self, shown: list[str], calls: list[ToolCallDelta]) -> bool:
        place, tag = self._next_tag()
        text, self._held = self._held[:place], self._held[place:]
        # Between calls there are line ends that belong to nobody.
        if self._index < 0 or text.strip():
            shown.append(text)
            self._said = self._said or bool(text.strip())
        if not tag or (self._form.bare and self._said):
            return bool(tag)
        if tag in self._form.drops:
            self._held = self._held[len(tag) :]
            return True
        self._tag, self._state = tag, self._in_header
        return True

    def _next_tag(self) -> tuple[int, str]:
        """The first tag in what is held; without one where it might begin."""
        form, held = self._form, self._held
        tags = form.tags if self._index < 0 else form.tags + form.more + form.drops
        if form.bare and self._said:
            return len(held), ""
        found = [(place, tag) for tag in tags if (place := held.find(tag)) >= 0]
        return min(found, default=(len(held) - _possible_start(held, tags), ""))

    def _in_header(self, shown: list[str], calls: list[ToolCallDelta]) -> bool:
        found = self._form.header_pattern.match(self._held)
        if found is None:
            if len(self._held) < len(self._tag) + HEADER_CHARS_MAX:
                return False
            shown.append(self._tag)
            self._said = True
            self._held = self._held[len(self._tag) :]
            self._state = self._in_text
            return True
        self._held = self._held[found.end() :]
        self._index += 1
        self._depth, self._written, self._quoted, self._escaped = 0, 0, False, False
        self._state = self._in_arguments
        if self._form.pairs is not None:
            self._state = self._in_pairs
            functions = (tool["function"] for tool in self._tools)
            named = [each.get("parameters") for each in functions if each["name"] == found[1]]
            self._schema = next(filter(None, named), NO_SCHEMA)
        call_id = f"{self._id}_{self._index}"
        calls.append(ToolCallDelta(index=self._index, id=call_id, name=found[1]))
        return True

    def _in_arguments(self, shown: list[str], calls: list[ToolCallDelta]) -> bool:
        end = self._arguments_end()
        part, self._held = self._held[:end], self._held[end:]
        calls.append(ToolCallDelta(index=self._index, arguments=part))
        if self._depth:
            return False
        return self._to_tail()

    def _in_pairs(self, shown: list[str], calls: list[ToolCallDelta]) -> bool:
        pairs = self._form.pairs
        assert pairs is not None
        held = self._held = self._held.lstrip()
        if key := pairs.key.match(held):
            end = held.find(pairs.value_end, key.end())
            if end < 0:
                return False
            value = held[key.end() : end]
            if pairs.value_close[0] == "\n":
                value = value.removesuffix("\n")
            self._written += 1
            before = "{" if self._written == 1 else ", "
            part = f"{before}{json.dumps(key[1], ensure_ascii=False)}: {self._json(key[1], value)}"
            calls.append(ToolCallDelta(index=self._index, arguments=part))
            self._held = held[end + len(pairs.value_end) :]
            return True
        if held.startswith(pairs.ends):
            part = "}" if self._written else "{}"
            calls.append(ToolCallDelta(index=self._index, arguments=part))
            return self._to_tail()
        expected = (pairs.key_open, *pairs.ends)
        begun = any(each.startswith(held) or held.startswith(each) for each in expected)
        if begun and len(held) < HEADER_CHARS_MAX:
            return False
        # What stands between arguments and is none.
        after = held.find("<", 1)
        self._held = held[after:] if after > 0 else ""
        return True

    def _json(self, key: str, value: str) -> str:
        """A value as JSON: a text, unless its schema allows what it is read as."""
        if not is_text(self._schema.get("properties", NO_SCHEMA).get(key), self._schema):
            try:
                msgspec.json.decode(value)
            except msgspec.DecodeError:
                pass
            else:
                return value.strip()
        return json.dumps(value, ensure_ascii=False)

    def _to_tail(self) -> bool:
        self._state = self._in_tail
        if self._form.end:
            return True
        self.complete += 1
        self._state = self._in_text
        return True

    def _in_tail(self, shown: list[str], calls: list[ToolCallDelta]) -> bool:
        end = self._form.end
        place = self._held.find(end)
        if place < 0:
            self._held = self._held[max(0, len(self._held) - len(end) + 1) :]
            return False
        self._held = self._held[place + len(end) :]
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
                parts.append(HERMES.open + HERMES.head + (call.name or "") + HERMES.middle)
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
        return ("{}" if self._bare else "") + HERMES.tail


def _possible_start(text: str, tags: tuple[str, ...]) -> int:
    """Length of the longest end of `text` that could be the start of a tag."""
    for length in range(min(len(text), max(map(len, tags)) - 1), 0, -1):
        end = text[-length:]
        if any(tag.startswith(end) for tag in tags):
            return length
    return 0
