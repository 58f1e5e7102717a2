"""The order of stage 6's layers, for all choices of one request."""

from collections import deque
from collections.abc import Iterator

import msgspec

from controlplane.gateway.answer import Piece
from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.ports import Safety
from controlplane.gateway.refusal import CONTENT_FILTER
from controlplane.gateway.s6_finish.detokenize import DETOKENIZE, detokenize
from controlplane.gateway.s6_finish.helpers.thoughts import ChannelFinder, ThoughtFinder
from controlplane.gateway.s6_finish.safety import SafetyFilter
from controlplane.gateway.s6_finish.stop import StopFinder
from controlplane.gateway.s6_finish.tools import CallFinder, CallSpeller
from controlplane.gateway.snapshot import SafetyMode
from controlplane.kernel.spans import INDEX
from inference.contract.frames import Output
from inference.contract.parts import TokenLogprob
from inference.text.decode import ChannelMarks, ThinkMarks
from inference.text.families import HERMES
from inference.text.model_text import ModelText

STOP = INDEX["s6_finish.stop"]
SAFETY = INDEX["s6_finish.safety"]
TOOLS = INDEX["s6_finish.tools"]
TOOL_CALLS = "tool_calls"
WHOLE = frozenset({"stop", TOOL_CALLS})
# Without a stop string it holds nothing, so that one serves all.
NO_STOP = StopFinder(())


class HeldLogprobs:
    """Logprobs of one choice. They name its text, so they leave when that text does."""

    __slots__ = ("_decoded", "_shown", "_waiting")

    def __init__(self) -> None:
        self._decoded = 0
        self._shown = 0
        self._waiting: deque[tuple[int, int, TokenLogprob]] = deque()

    def add(self, chars: int, entries: list[TokenLogprob]) -> None:
        """The entries of tokens that became the next `chars` characters."""
        begin, self._decoded = self._decoded, self._decoded + chars
        self._waiting.extend((begin, self._decoded, entry) for entry in entries)

    def leave(self, chars: int) -> list[TokenLogprob]:
        """Entries whose text is out, now that the next `chars` characters are."""
        self._shown += chars
        left = []
        while self._waiting and self._waiting[0][1] <= self._shown:
            left.append(self._waiting.popleft()[2])
        return left

    def close(self, *, cut: bool) -> list[TokenLogprob]:
        """The rest; where the text was cut, only of tokens that begin before the cut."""
        return [entry for begin, _, entry in self._waiting if not cut or begin < self._shown]


class Choice:
    __slots__ = (
        "calls", "capped", "decoder", "finder", "finish", "logprobs", "screens", "safety",
        "speller", "stop", "thinks", "thoughts", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        text: ModelText | None,
        stops: tuple[str, ...],
        *,
        safety: SafetyFilter | None,
        thoughts: SafetyFilter | None,
        calls: CallFinder | None,
        finder: ThoughtFinder | None,
    ) -> None:
        self.decoder = text.decoder(calls=calls is not None) if text else None
        self.stop = StopFinder(stops) if stops else NO_STOP
        self.safety = safety
        self.thoughts = thoughts
        # What looks at its answer, and at its thoughts.
        self.screens = [screen for screen in (safety, thoughts) if screen is not None]
        self.thinks = False
        self.finder = finder
        self.calls = calls
        self.speller = CallSpeller()
        self.logprobs = HeldLogprobs()
        self.tokens = 0
        self.finish: str | None = None
        # By the bound on its calls.
        self.capped = False

    @property
    def blocked(self) -> bool:
        return bool(self.screens) and any(screen.blocked for screen in self.screens)


class Finisher:
    """Turns outputs into pieces; without a `text` the engine has made it.

    `tokens` counts what was generated of each choice's answer up to its end. `screens`: a safety
    layer looks at the text, which may take time. `bare`: text is all that the tokens of an answer
    become. `opened`: whether the prompt ends inside thoughts, None where the model may begin them.
    """

    __slots__ = ("_call", "_calls_max", "_least", "_singly", "bare", "choices", "ended", "screens")

    def __init__(
        self,
        call: Call,
        ask: Ask,
        text: ModelText | None,
        *,
        mode: SafetyMode,
        safety: Safety,
        opened: bool | None = False,
    ) -> None:
        self._call = call
        # A stop string can end a choice inside an output: tokens behind it are not charged.
        self.ended = False
        self._singly = bool(ask.stop) or ask.sampling.logprobs is not None
        # Tokens that no stop string ends.
        self._least = ask.sampling.min_tokens
        self._calls_max = ask.calls_max
        self.screens = mode != "off"
        self.bare = not (self._singly or self.screens or ask.tools) and text is not None

        marks = text.marks if text is not None and opened is not False else None
        form = (text.form if text is not None else None) or HERMES

        def screen() -> SafetyFilter | None:
            return SafetyFilter(mode, safety) if self.screens else None

        self.choices = [
            Choice(
                text,
                ask.stop,
                safety=screen(),
                thoughts=None if text and marks is None else screen(),
                calls=CallFinder(f"call_{call.request.hex()}_{place}", form, ask.tools)
                if ask.tools
                else None,
                finder=_thought_finder(text, marks, opened=bool(opened))
                if text and marks
                else None,
            )
            for place in range(ask.choices)
        ]

    @property
    def cut_tokens(self) -> int:
        """Tokens of all choices up to their ends, as delivered."""
        before = sum(choice.finder.tokens for choice in self.choices if choice.finder)
        return before + sum(choice.tokens for choice in self.choices)

    @property
    def reasoning_tokens(self) -> int:
        """Tokens that were found to be thoughts, with their marks."""
        finders = (choice.finder for choice in self.choices)
        return sum(finder.tokens for finder in finders if finder and finder.thinks)

    @property
    def was_cut(self) -> bool:
        """A choice was ended here, by a stop string, the safety layer or the bound on its calls,
        not by the engine.
        """
        return any(each.stop.stopped or each.blocked or each.capped for each in self.choices)

    @property
    def capped(self) -> bool:
        """Whether the bound on calls has ended a choice."""
        return any(choice.capped for choice in self.choices)

    @property
    def finish_reason(self) -> str:
        return self.choices[0].finish or ""

    @property
    def verdict(self) -> str:
        if not self.screens:
            return ""
        found = (screen.verdict for choice in self.choices for screen in choice.screens)
        return next(filter(None, found), "")

    def next_text(self, output: Output) -> str | None:
        """Text of an output with which its choice goes on, where it becomes nothing else."""
        choice = self.choices[output.choice]
        decoder = choice.decoder
        if decoder is None or output.finish is not None or choice.finish is not None:
            return None
        if not (choice.tokens and self.bare):
            return None
        choice.tokens += len(output.tokens)
        return decoder.feed(output.tokens)

    def feed(self, outputs: list[Output]) -> list[Piece]:
        """Pieces to show for a batch of outputs, one per choice at most; for one that `screens`
        there is `feed_screened`.
        """
        pieces: dict[int, Piece] = {}
        for choice, output, piece in self._parts(outputs, pieces):
            thought, output = self._find_thought(choice, output)
            piece.reasoning += thought
            self._show(choice, piece, *self._read(choice, output))
            self._note(piece)
        return list(pieces.values())

    async def feed_screened(self, outputs: list[Output]) -> list[Piece]:
        """The same behind the safety layer."""
        pieces: dict[int, Piece] = {}
        for choice, output, piece in self._parts(outputs, pieces):
            thought, output = self._find_thought(choice, output)
            if thought or choice.thinks:
                piece.reasoning += await self._think(choice, thought, output)
            if choice.blocked:
                choice.tokens += output.delivered
                self._end(choice, piece, CONTENT_FILTER)
                continue
            text, reason = self._read(choice, output)
            if choice.safety is not None:
                text, reason = await self._screen(choice.safety, text, reason)
            self._show(choice, piece, text, reason)
            self._note(piece)
        return list(pieces.values())

    async def screened(self) -> None:
        """Wait until `verdict` is final."""
        for choice in self.choices:
            for screen in choice.screens:
                await screen.settled()

    def _parts(
        self, outputs: list[Output], pieces: dict[int, Piece]
    ) -> Iterator[tuple[Choice, Output, Piece]]:
        """What is looked at by itself, and the piece that it belongs to, made where it is none."""
        for output in outputs:
            choice = self.choices[output.choice]
            for part in _singles(output) if self._singly else (output,):
                if choice.finish is not None:
                    break
                if output.choice not in pieces:
                    pieces[output.choice] = Piece(choice=output.choice, text="", logprobs=[])
                yield choice, part, pieces[output.choice]

    def _read(self, choice: Choice, output: Output) -> tuple[str, str | None]:
        """Text of an output up to a stop string, and why its choice ends if it does."""
        only = output.finish is not None and not choice.tokens
        choice.tokens += output.delivered
        text = detokenize(self._call, choice.decoder, output, only=only)
        if choice.finder is not None and choice.finder.lead:
            text, choice.finder.lead = choice.finder.lead + text, ""
        if self.bare:
            self._call.spans.idle(STOP)
            return text, output.finish
        if choice.calls is not None and choice.decoder is None:
            text += choice.speller.feed(output.tool_calls or [])
            text += choice.speller.close() if output.finish in WHOLE else ""
        choice.logprobs.add(len(text), output.logprobs or [])
        return self._stops(choice, text, output.finish)

    def _show(self, choice: Choice, piece: Piece, text: str, reason: str | None) -> None:
        """Add what is left of the text to its piece: as text, as calls, with its logprobs."""
        if self.bare:
            self._end(choice, piece, reason)
            piece.text += text
            return
        piece.logprobs += choice.logprobs.leave(len(text))
        if choice.calls is not None:
            text, reason = self._find_calls(
                choice.calls, text, reason, piece, cut=choice.stop.stopped
            )
            if self._calls_max is not None and choice.calls.begun > self._calls_max:
                piece.calls = [call for call in piece.calls if call.index < self._calls_max]
                choice.capped, reason = True, TOOL_CALLS
        self._end(choice, piece, reason)
        piece.text += text
        if reason is not None and not choice.blocked:
            piece.logprobs += choice.logprobs.close(cut=choice.stop.stopped)

    def _end(self, choice: Choice, piece: Piece, reason: str | None) -> None:
        """End a choice, where there is a reason."""
        if reason is not None:
            choice.finish = piece.finish = reason
            piece.stop = choice.stop.match
            self.ended = all(each.finish is not None for each in self.choices)

    def _find_thought(self, choice: Choice, output: Output) -> tuple[str, Output]:
        """What is thought in an output, and what of it belongs to the answer."""
        finder = choice.finder
        if finder is None or finder.answered:
            return output.reasoning or "", output
        began = self._call.spans.clock()
        thought, count = finder.feed(output.tokens, ended=output.finish is not None)
        self._call.spans.add(DETOKENIZE, began)
        logprobs = output.logprobs and output.logprobs[count:]
        tokens = output.tokens[count:]
        return thought, msgspec.structs.replace(output, tokens=tokens, logprobs=logprobs)

    def _note(self, piece: Piece) -> None:
        """When thoughts came first, and when the answer to them did."""
        call = self._call
        if piece.reasoning and not call.thought_ns:
            call.thought_ns = call.last_token_ns
        if call.thought_ns and not call.answer_ns and (piece.text or piece.calls):
            call.answer_ns = call.last_token_ns

    async def _think(self, choice: Choice, text: str, output: Output) -> str:
        """Thoughts that may be shown now; all of them before the answer goes on.

        Stop strings, tools and formats are of the answer alone.
        """
        screen = choice.thoughts
        if screen is None:
            return text
        began = self._call.spans.clock()
        text = await screen.feed(text)
        answers = output.tokens or output.text or output.tool_calls
        choice.thinks = not (answers or output.finish)
        if not choice.thinks:
            text += await screen.close()
        self._call.spans.add(SAFETY, began)
        return text

    def _stops(self, choice: Choice, text: str, reason: str | None) -> tuple[str, str | None]:
        if choice.stop is NO_STOP or choice.tokens <= self._least:
            self._call.spans.idle(STOP)
            return text, reason
        began = self._call.spans.clock()
        text = choice.stop.feed(text)
        if choice.stop.stopped:
            reason = "stop"
        elif reason is not None:
            text += choice.stop.close()
        self._call.spans.add(STOP, began)
        return text, reason

    def _find_calls(
        self, calls: CallFinder, text: str, reason: str | None, piece: Piece, *, cut: bool
    ) -> tuple[str, str | None]:
        began = self._call.spans.clock()
        text, found = calls.feed(text)
        piece.calls += found
        if reason is not None:
            text += calls.close(cut=cut or reason not in WHOLE)
        self._call.spans.add(TOOLS, began)
        return text, TOOL_CALLS if reason == "stop" and calls.complete else reason

    async def _screen(
        self, screen: SafetyFilter, text: str, reason: str | None
    ) -> tuple[str, str | None]:
        began = self._call.spans.clock()
        text = await screen.feed(text)
        if reason is not None:
            text += await screen.close()
        self._call.spans.add(SAFETY, began)
        return text, CONTENT_FILTER if screen.blocked else reason


def _thought_finder(
    text: ModelText, marks: ThinkMarks | ChannelMarks, *, opened: bool
) -> ThoughtFinder:
    if isinstance(marks, ChannelMarks):
        return ChannelFinder(marks, text.decoder())
    return ThoughtFinder(marks, text.decoder(), opened=opened)


def _singles(output: Output) -> list[Output]:
    """One output per token; the last one has the finish reason."""
    last = len(output.tokens) - 1
    if last <= 0:
        return [output]
    return [
        msgspec.structs.replace(
            output,
            tokens=[token],
            # That of an end token stands behind the last.
            logprobs=output.logprobs
            and output.logprobs[place : None if place == last else place + 1],
            finish=output.finish if place == last else None,
        )
        for place, token in enumerate(output.tokens)
    ]
