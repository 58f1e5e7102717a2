"""Holds outputs to a grammar: compiled off the step loop, then a mask of tokens for every draw.

llguidance does the work. It compiles lazily, so that even large schemas are ready in milliseconds,
and everything it does is limited: what a client sends must end in a refusal, never in a hang.
"""

import asyncio
from collections.abc import Collection
from pathlib import Path
from time import thread_time

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from inference.compact.grammar.queue import GrammarQueue
from inference.compact.schedule.mask import WORD_BITS
from inference.contract.grammar import JSON_WHITESPACE, Grammar
from inference.errors import JobRefused

COMPILE_S_MAX = 5.0
REASON_CHARS_MAX = 300
# Steps tried before a grammar is taken, since some faults show only when it is first walked.
TRIAL_STEPS = 4
# Seen with bombs: under a second of compiling, 10 ms of one step, 20 MB of lexer states.
LIMITS = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    max_grammar_size=100_000,
    max_lexer_states=10_000,
    step_lexer_fuel=100_000,
    step_max_items=20_000,
    verbose_errors=False,
)
# CPU time in the step loop: what a choice has at first and at most, and what each mask adds. Usual
# masks take 0.1 ms and a first one 10 ms; of ambiguous grammars within `LIMITS` each took 25 ms and
# up to 110, during which every other choice waits.
CHOICE_CPU_S = 0.5
MASK_CPU_S = 0.002
NOTHING_MATCHES = "NoExtension"


class GrammarMask:
    """One choice's place in its grammar. An end token is allowed only where the text is whole."""

    def __init__(self, matcher: LLMatcher, eos: Collection[int]) -> None:
        self._matcher = matcher
        self._eos = eos
        self._ended = False
        self._left_s = CHOICE_CPU_S

    def fill(self, bits: bytearray) -> None:
        """Bits of the tokens that may come next; none when a limit was reached."""
        row = np.frombuffer(bits, np.uint8)
        spent = self._left_s < 0
        if not self._ended and not spent:
            began_s = thread_time()
            self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
            self._left_s += MASK_CPU_S - (thread_time() - began_s)
            self._left_s = min(self._left_s, CHOICE_CPU_S)
        if self._ended or spent or self._matcher.is_error():
            row.fill(0)

    def accept(self, token: int) -> bool:
        if token in self._eos:
            # Not passed to the matcher: one that has nothing left to match does not record it.
            self._ended = not self._ended and self._matcher.is_accepting()
            return self._ended
        if self._ended:
            return False
        began_s = thread_time()
        taken: int = self._matcher.try_consume_tokens([token])
        self._left_s -= thread_time() - began_s
        return taken == 1

    def rollback(self, count: int) -> None:
        if count and self._ended:
            self._ended = False
            count -= 1
        if count and not self._matcher.rollback(count):
            raise ValueError(f"rollback: {count} tokens were never accepted")


class CompiledGrammar:
    """A grammar ready for use; each choice takes its own mask."""

    def __init__(self, start: LLMatcher, eos: Collection[int]) -> None:
        self._start = start
        self._eos = eos

    def mask(self) -> GrammarMask:
        return GrammarMask(self._start.deep_copy(), self._eos)


class GrammarCompiler:
    """Compiles for one model; keeps what was used last, refusals too, for all tenants.

    Raises ValueError for a tokenizer that llguidance cannot read.
    """

    def __init__(self, tokenizer: Path, *, vocab_size: int, eos: Collection[int]) -> None:
        self._tokenizer = LLTokenizer(
            tokenizer.read_text(encoding="utf-8"), n_vocab=vocab_size, eos_token=sorted(eos)
        )
        self._eos = frozenset(eos)
        self._queue = GrammarQueue(self._build)

    async def compile(self, grammar: Grammar, *, tenant: bytes) -> CompiledGrammar:
        """`tenant` is whose turn it takes. Raises `JobRefused`: `bad_grammar` with the reason, or
        `full`.
        """
        made = self._queue.find(grammar)
        if made is None:
            made = await self._made(grammar, tenant)
        if isinstance(made, str):
            raise JobRefused("bad_grammar", made)
        return made

    def close(self) -> None:
        self._queue.close()

    async def _made(self, grammar: Grammar, tenant: bytes) -> CompiledGrammar | str:
        try:
            async with asyncio.timeout(COMPILE_S_MAX):
                return await self._queue.make(tenant, grammar)
        except TimeoutError:
            if grammar != self._queue.begun:
                # Held up by others, which says nothing about this one.
                raise JobRefused("full", "other grammars are being compiled") from None
            return f"it was not compiled within {COMPILE_S_MAX:g} s"

    def _build(self, grammar: Grammar) -> CompiledGrammar | str:
        """The compiled grammar, or why there is none; runs in a thread."""
        try:
            source = _source(grammar)
        except ValueError as error:
            return _reason(str(error))
        start = LLMatcher(self._tokenizer, source, log_level=0, limits=LIMITS)
        problem = start.get_error() or self._trial(start.deep_copy())
        return _reason(problem) if problem else CompiledGrammar(start, self._eos)

    def _trial(self, matcher: LLMatcher) -> str:
        """Walk a few tokens; why that fails, if it does."""
        words = np.zeros(-(-self._tokenizer.vocab_size // WORD_BITS), dtype=np.int32)
        for _ in range(TRIAL_STEPS):
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            if matcher.is_error() or matcher.is_stopped():
                break
            bits = np.unpackbits(words.view(np.uint8), bitorder="little")
            allowed = [int(token) for token in np.flatnonzero(bits) if token not in self._eos]
            if not allowed or not matcher.consume_token(allowed[0]):
                break
        return matcher.get_error()


def _source(grammar: Grammar) -> str:
    """In llguidance's own form; raises ValueError for what it cannot read."""
    if grammar.kind == "regex":
        return LLMatcher.grammar_from_regex(grammar.source)
    if grammar.kind == "lark":
        return LLMatcher.grammar_from_lark(grammar.source)
    schema = '{"type":"object"}' if grammar.kind == "json_object" else grammar.source
    return LLMatcher.grammar_from_json_schema(
        schema, overrides={"whitespace_pattern": JSON_WHITESPACE}
    )


def _reason(problem: str) -> str:
    """One line of a complaint that may show its source over several."""
    if problem.startswith(NOTHING_MATCHES):
        return "no text can match it"
    first, *others = problem.splitlines()
    lines = [first, *(line for line in others if line.startswith("error: "))]
    return " ".join(lines)[:REASON_CHARS_MAX]
