"""Prompts that a client wants before their choices, and how likely each of their tokens was."""

from controlplane.gateway.answer import UNSCORED, Piece
from controlplane.gateway.ask import Ask
from controlplane.gateway.results import Prompt
from inference.contract.frames import Output
from inference.contract.parts import TokenLogprob, prompt_at
from inference.text.model_text import ModelText


class RepeatedPrompts:
    """Those of one answer; without a `text` they came as texts and are not scored."""

    def __init__(self, ask: Ask, prompt: Prompt, text: ModelText | None) -> None:
        self._ask = ask
        self._prompt = prompt
        self._text = text
        self._scores: dict[int, list[TokenLogprob]] = {}
        self._begun: set[int] = set()

    def take(self, outputs: list[Output]) -> list[Output]:
        """Keep scores; returns the outputs that bring more than those."""
        for output in outputs:
            self._scores.setdefault(output.choice, []).extend(output.prompt_logprobs or ())
        return [each for each in outputs if each.delivered or each.finish is not None]

    def begin(self, pieces: list[Piece]) -> None:
        """Put the prompt before the first piece of a choice."""
        for piece in pieces:
            if piece.choice in self._begun:
                continue
            self._begun.add(piece.choice)
            place, choice = divmod(piece.choice, self._ask.sampling.n)
            ids = prompt_at(self._prompt.tokens, self._prompt.lengths, place)
            given = self._ask.prompts[place] if self._ask.prompts else self._ask.text
            if self._text is not None and (self._ask.truncate or not isinstance(given, str)):
                given = self._text.spelled(ids)
            elif self._text is not None:
                piece.unseen = self._text.unseen(ids[0], str(given))
            piece.text = f"{given}{piece.text}"
            if self._ask.sampling.logprobs is not None:
                first = TokenLogprob(token=ids[0], logprob=UNSCORED, top=[])
                piece.logprobs = [
                    first,
                    *self._scores.get(piece.choice - choice, ()),
                    *piece.logprobs,
                ]
