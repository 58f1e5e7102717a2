"""The order of stage 6's layers, for all choices of one request."""

from __future__ import annotations

from controlplane.gateway.answer import Piece
from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.ports import Safety
from controlplane.gateway.s6_finish.detokenize import detokenize
from controlplane.gateway.s6_finish.safety import SafetyFilter
from controlplane.gateway.s6_finish.stop import StopFinder
from controlplane.gateway.snapshot import SafetyMode
from controlplane.kernel.spans import INDEX
from inference.contract.frames import Output
from inference.text.model_text import ModelText

STOP = INDEX["s6_finish.stop"]
SAFETY = INDEX["s6_finish.safety"]
CONTENT_FILTER = "content_filter"


class Choice:
    """One choice between its first token and its finish reason."""

    __slots__ = ("decoder", "finish", "safety", "stop", "tokens")

    def __init__(
        self, text: ModelText, stops: tuple[str, ...], safety: SafetyFilter | None
    ) -> None:
        self.decoder = text.decoder()
        self.stop = StopFinder(stops)
        self.safety = safety
        self.tokens = 0
        self.finish: str | None = None


class Finisher:
    """Turns outputs into pieces. `tokens` counts what was generated up to each choice's end."""

    __slots__ = ("_call", "choices", "verdict")

    def __init__(
        self, call: Call, ask: Ask, text: ModelText, *, mode: SafetyMode, safety: Safety
    ) -> None:
        self._call = call
        self.verdict = ""
        self.choices = [
            Choice(text, ask.stop, None if mode == "off" else SafetyFilter(mode, safety))
            for _ in range(ask.sampling.n)
        ]

    @property
    def ended(self) -> bool:
        """Every choice has its finish reason."""
        return all(choice.finish is not None for choice in self.choices)

    @property
    def cut_tokens(self) -> int:
        """Tokens of all choices up to their ends, as delivered."""
        return sum(choice.tokens for choice in self.choices)

    @property
    def was_cut(self) -> bool:
        """A choice was ended here, by a stop string or the safety layer, not by the engine."""
        return any(
            choice.stop.stopped or (choice.safety is not None and choice.safety.blocked)
            for choice in self.choices
        )

    @property
    def finish_reason(self) -> str:
        """The reason of the first choice, for the record."""
        return self.choices[0].finish or ""

    async def feed(self, outputs: list[Output]) -> list[Piece]:
        """Pieces to show for a batch of outputs, one per choice at most."""
        pieces: dict[int, Piece] = {}
        for output in outputs:
            choice = self.choices[output.choice]
            if choice.finish is not None:
                continue
            piece = await self._piece(choice, output)
            if output.choice in pieces:
                _join(pieces[output.choice], piece)
            else:
                pieces[output.choice] = piece
        return list(pieces.values())

    async def _piece(self, choice: Choice, output: Output) -> Piece:
        text = detokenize(self._call, choice.decoder, output)
        choice.tokens += len(output.tokens)
        text, reason = self._stops(choice, text, output.finish)
        if choice.safety is not None:
            text, reason = await self._screen(choice.safety, text, reason)
        choice.finish = reason
        return Piece(choice=output.choice, text=text, logprobs=output.logprobs or [], finish=reason)

    def _stops(self, choice: Choice, text: str, reason: str | None) -> tuple[str, str | None]:
        began = self._call.spans.clock()
        text = choice.stop.feed(text)
        if choice.stop.stopped:
            reason = "stop"
        elif reason is not None:
            text += choice.stop.close()
        self._call.spans.add(STOP, began)
        return text, reason

    async def _screen(
        self, screen: SafetyFilter, text: str, reason: str | None
    ) -> tuple[str, str | None]:
        began = self._call.spans.clock()
        text = await screen.feed(text)
        if reason is not None:
            text += await screen.close()
        self.verdict = screen.verdict or self.verdict
        self._call.spans.add(SAFETY, began)
        return text, CONTENT_FILTER if screen.blocked else reason


def _join(first: Piece, second: Piece) -> None:
    first.text += second.text
    first.logprobs = first.logprobs + second.logprobs
    first.finish = second.finish
