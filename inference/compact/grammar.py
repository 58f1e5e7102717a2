"""Holds outputs to a grammar: compiled off the step loop, then a mask of tokens for every draw.

llguidance does the work. It compiles lazily, so that even large schemas are ready in milliseconds,
and everything it does is limited: what a client sends must end in a refusal, never in a hang.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from inference.compact.mask import WORD_BITS
from inference.contract.frames import JSON_WHITESPACE, Grammar
from inference.engines.base import JobRefused

THREADS = 1
QUEUE_MAX = 64
CACHE_MAX = 64
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
NOTHING_MATCHES = "NoExtension"


class GrammarMask:
    """One choice's place in its grammar. An end token is allowed only where the text is whole."""

    def __init__(self, matcher: LLMatcher, eos: Collection[int]) -> None:
        self._matcher = matcher
        self._eos = eos
        self._ended = False

    def fill(self, bits: bytearray) -> None:
        """Bits of the tokens that may come next; none when a limit was reached."""
        row = np.frombuffer(bits, np.uint8)
        if not self._ended:
            self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        if self._ended or self._matcher.is_error():
            row.fill(0)

    def accept(self, token: int) -> bool:
        """Move on by a token; False where it may not come."""
        if token in self._eos:
            # Not told to the matcher: one that has nothing left to match does not record it.
            self._ended = not self._ended and self._matcher.is_accepting()
            return self._ended
        return not self._ended and self._matcher.try_consume_tokens([token]) == 1

    def rollback(self, count: int) -> None:
        """Take back accepted tokens."""
        if count and self._ended:
            self._ended = False
            count -= 1
        if count and not self._matcher.rollback(count):
            raise ValueError(f"rollback: {count} tokens were never accepted")


class CompiledGrammar:
    """A grammar ready for use; each choice takes a mask of its own."""

    def __init__(self, start: LLMatcher, eos: Collection[int]) -> None:
        self._start = start
        self._eos = eos

    def mask(self) -> GrammarMask:
        """A mask at the beginning."""
        return GrammarMask(self._start.deep_copy(), self._eos)


class GrammarCompiler:
    """Compiles for one model, each grammar once at a time; keeps what was used last, refusals too.

    Raises ValueError for a tokenizer that llguidance cannot read.
    """

    def __init__(self, tokenizer: Path, *, vocab_size: int, eos: Collection[int]) -> None:
        self._tokenizer = LLTokenizer(
            tokenizer.read_text(encoding="utf-8"), n_vocab=vocab_size, eos_token=sorted(eos)
        )
        self._eos = frozenset(eos)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="grammar")
        self._cache: OrderedDict[Grammar, CompiledGrammar | str] = OrderedDict()
        self._underway: dict[Grammar, asyncio.Future[CompiledGrammar | str]] = {}
        self._begun: Grammar | None = None

    async def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Raises `JobRefused`: `bad_grammar` with the reason, or `full`."""
        made = self._cache.get(grammar)
        if made is None:
            made = await self._made(grammar)
        if isinstance(made, str):
            raise JobRefused("bad_grammar", made)
        self._cache.move_to_end(grammar)
        return made

    def close(self) -> None:
        """Compile nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _made(self, grammar: Grammar) -> CompiledGrammar | str:
        work = self._underway.get(grammar)
        if work is None:
            if len(self._underway) >= QUEUE_MAX:
                raise JobRefused("full", f"{QUEUE_MAX} grammars wait to be compiled")
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(self._threads, self._build, grammar)
            self._underway[grammar] = work
            work.add_done_callback(partial(self._keep, grammar))
        try:
            async with asyncio.timeout(COMPILE_S_MAX):
                # Others may wait for the same grammar, so one that leaves does not end the work.
                return await asyncio.shield(work)
        except TimeoutError:
            if grammar != self._begun:
                # Held up by others' grammars, which says nothing about this one.
                raise JobRefused("full", "other grammars are being compiled") from None
            return f"it was not compiled within {COMPILE_S_MAX:g} s"

    def _keep(self, grammar: Grammar, work: asyncio.Future[CompiledGrammar | str]) -> None:
        del self._underway[grammar]
        if not work.cancelled() and work.exception() is None:
            self._cache[grammar] = work.result()
            if len(self._cache) > CACHE_MAX:
                self._cache.popitem(last=False)

    def _build(self, grammar: Grammar) -> CompiledGrammar | str:
        """The compiled grammar, or why there is none; runs in a thread."""
        self._begun = grammar
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
    told = [first, *(line for line in others if line.startswith("error: "))]
    return " ".join(told)[:REASON_CHARS_MAX]
