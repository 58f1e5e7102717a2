"""Thoughts out of the tokens of one choice: all that stands before its answer.

They are told apart by the ids of the model's think marks, so nothing depends on how tokens arrive.
"""

from collections.abc import Sequence

from inference.text.decode import ThinkMarks, TokenDecoder


class ThoughtFinder:
    """Tokens in, text of thoughts out, until the choice has `answered`.

    `tokens` counts those before the answer: thoughts, marks and the line ends around them. Blanks
    at either end of the thoughts are not shown. `opened`: the prompt itself begins the thoughts.
    """

    __slots__ = ("_begun", "_decoder", "_held", "_inside", "_marks", "answered", "thinks", "tokens")

    def __init__(self, marks: ThinkMarks, decoder: TokenDecoder, *, opened: bool) -> None:
        self._marks = marks
        self._decoder = decoder
        self._held = ""
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
