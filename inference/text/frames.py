"""What a chat template puts around the contents of messages, rendered once for each row of roles.

Where a template only prints contents (`flow.py` tells), prompts of messages with the same roles
are the same text with other contents in it. So the sandbox renders marks in their place, and what
stands between the marks is kept for the day, since a template may print the date.
"""

import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

# Longer talks, and larger contents, are rendered; there the frame would save little.
TURNS_MAX = 64
CONTENT_CHARS_MAX = 1024 * 1024
KEPT_MAX = 256
DAY_S = 86_400
FIELDS = ("role", "content")
# What trimming takes away, and no template writes: a separator of ASCII.
EDGE = "\x1c"
WRITTEN_EDGE = repr(EDGE).strip("'")

Message = Mapping[str, Any]
NO_VARIABLES: Message = {}


class Slot(msgspec.Struct, frozen=True):
    """Text, and which content follows it, trimmed at these ends."""

    before: str
    place: int
    left: bool
    right: bool


class Frame(msgspec.Struct, frozen=True):
    """A prompt with slots for contents."""

    slots: list[Slot]
    after: str

    def filled(self, contents: Sequence[str]) -> str:
        parts: list[str] = []
        for slot in self.slots:
            content = contents[slot.place]
            if slot.left:
                content = content.strip() if slot.right else content.lstrip()
            elif slot.right:
                content = content.rstrip()
            parts += (slot.before, content)
        parts.append(self.after)
        return "".join(parts)


class Frames:
    """Those of one template, by roles and variables; the ones not used longest go."""

    def __init__(self, render: Callable[[Sequence[Message], Message], str]) -> None:
        self._render = render
        self._kept: OrderedDict[tuple[object, ...], Frame] = OrderedDict()
        # No client can know it.
        self._mark = f"\ufdd0{secrets.token_hex(8)}:"
        self._cut = re.compile(rf"({EDGE}?){self._mark}(\d+)\ufdd1({EDGE}?)")

    def filled(self, messages: Sequence[Message], variables: Message = NO_VARIABLES) -> str | None:
        """The prompt, None for messages that have to be rendered; raises what `render` does."""
        contents: list[str] = [message["content"] for message in messages]
        if len(contents) > TURNS_MAX or sum(map(len, contents)) > CONTENT_CHARS_MAX:
            return None
        if max(map(len, messages), default=0) > len(FIELDS):
            return None
        # Written out, since True equals 1 and a template may print either.
        chosen = repr(sorted(variables.items())) if variables else ""
        if WRITTEN_EDGE in chosen:
            return None
        key = (time.time() // DAY_S, chosen, *[message["role"] for message in messages])
        frame = self._kept.get(key)
        if frame is None:
            frame = self._kept[key] = self._made(messages, variables)
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return frame.filled(contents)

    def _made(self, messages: Sequence[Message], variables: Message) -> Frame:
        marked = [
            {**message, "content": f"{EDGE}{self._mark}{place}\ufdd1{EDGE}"}
            for place, message in enumerate(messages)
        ]
        first, *rest = self._cut.split(self._render(marked, variables))
        slots, before = [], first
        for left, place, right, after in zip(*[iter(rest)] * 4, strict=True):
            slots.append(Slot(before, int(place), not left, not right))
            before = after
        return Frame(slots, before)
