"""Thoughts out of the tokens of one choice: all that stands before its answer.

They are told apart by the ids of the model's think marks, so nothing depends on how tokens arrive.
"""

import re
from collections.abc import Sequence

from inference.text.decode import ChannelMarks, ThinkMarks, TokenDecoder
from inference.text.families import HARMONY

HEADER_CHARS_MAX = 256
CALLED = re.compile(r"to=functions\.([\w-]{1,64})")


class ThoughtFinder:
    """Tokens in, text of thoughts out, until the choice has `answered`.

    `tokens` counts those before the answer: thoughts, marks and the line ends around them. Blanks
    at either end of the thoughts are not shown. `opened`: the prompt itself begins the thoughts.
    `lead` is text that these tokens put before the answer.
    """

    __slots__ = (
        "_begun", "_decoder", "_held", "_inside", "_marks", "answered", "lead", "thinks", "tokens",
    )  # fmt: skip

    def __init__(self, marks: ThinkMarks, decoder: TokenDecoder, *, opened: bool) -> None:
        self._marks = marks
        self._decoder = decoder
        self._held = self.lead = ""
        self._begun = self.answered = False
        self._inside = self.thinks = opened
        self.tokens = 0

    def feed(self, tokens: Sequence[int], *, ended: bool) -> tuple[str, int]:
        """Thoughts that may be shown now, and how many of the tokens stand before the answer."""
        marks, text, count = self._marks, "", 0
        for token in tokens:
            if self._inside:
                if token == marks.closing:
                    text += self._decoder.close()
                    self._inside = False
                elif token != marks.opening:
                    text += self._decoder.feed((token,))
            elif token == marks.opening and not self.thinks:
                self._inside = self.thinks = True
            elif token not in marks.blanks:
                self.answered = True
                break
            count += 1
        if ended and self._inside:
            text += self._decoder.close()
        self.tokens += count
        return self._shown(text), count

    def _shown(self, text: str) -> str:
        text = self._held + text
        shown = text.rstrip() if self._begun else text.strip()
        self._begun = self._begun or bool(shown)
        self._held = text[len(text.rstrip()) :] if self._begun else ""
        return shown


class ChannelFinder(ThoughtFinder):
    """Thoughts in OpenAI's harmony format: all messages before the final one, or before a call."""

    __slots__ = ("_channels", "_header")

    def __init__(self, marks: ChannelMarks, decoder: TokenDecoder) -> None:
        self._channels = marks
        self._decoder = decoder
        self._held = self.lead = ""
        self._begun = self.answered = self._inside = self.thinks = False
        self._header = ""
        self.tokens = 0

    def feed(self, tokens: Sequence[int], *, ended: bool) -> tuple[str, int]:
        marks, text, count = self._channels, "", 0
        for token in tokens:
            if self.answered:
                break
            count += 1
            if self._inside and token in (marks.start, marks.end):
                text += self._decoder.close() + "\n\n"
                self._inside = False
            elif self._inside:
                text += self._decoder.feed((token,))
            elif token == marks.message:
                self._header += self._decoder.close()
                self._read_header()
            elif token == marks.channel:
                self._header += " "
            else:
                self._header += self._decoder.feed((token,))
        if ended and self._inside:
            text += self._decoder.close()
        elif not self.answered and (ended or len(self._header) > HEADER_CHARS_MAX):
            # An answer without any channel.
            self.lead, self._header, self.answered = self._header, "", True
        self.tokens += count
        return self._shown(text), count

    def _read_header(self) -> None:
        header, self._header = self._header, ""
        if called := CALLED.search(header):
            self.lead = f"{HARMONY.open}{called[1]}{HARMONY.middle}"
        self.answered = "final" in header or bool(self.lead)
        self._inside = not self.answered
        self.thinks = self.thinks or self._inside
