"""Holds outputs to a grammar: compiled off the step loop, then a mask of tokens for every draw.

llguidance does the work. It compiles lazily, so that even large schemas are ready in milliseconds,
and everything it does is limited: what a client sends must end in a refusal, never in a hang.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray

from inference.compact.schedule.request import WORD_BITS
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
# What each of several masks may add to the one call for all; a call that takes longer has all of
# them measured by themselves until they have made up for it.
SHARED_CPU_S = 0.0003
NOTHING_MATCHES = "NoExtension"
THREADS = 1
# What makes several masks at once.
MASK_THREADS_MAX = 16
TOGETHER_MIN = 2
TENANT_QUEUE_MAX = 32
QUEUE_MAX = 512
CACHE_MAX = 64


class GrammarMask:
    """One choice's place in its grammar. An end token is allowed only where the text is whole."""

    def __init__(self, matcher: LLMatcher, eos: Collection[int], executor: LLExecutor) -> None:
        self._matcher = matcher
        self._eos = eos
        self._executor = executor
        self._ended = False
        self._left_s = CHOICE_CPU_S

    def fill(self, bits: memoryview) -> None:
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

    @staticmethod
    def fill_all(masks: list[tuple["GrammarMask", int]], bits: NDArray[np.uint8]) -> None:
        """In one call, on all cores, for those whose masks have been quick so far."""
        quick: list[tuple[GrammarMask, int]] = []
        alone: list[tuple[GrammarMask, int]] = []
        for mask, row in masks:
            is_quick = not mask._ended and mask._left_s >= CHOICE_CPU_S - MASK_CPU_S
            (quick if is_quick else alone).append((mask, row))
        if len(quick) < TOGETHER_MIN:
            quick, alone = [], masks
        for mask, row in alone:
            mask.fill(bits[row].data)
        if not quick:
            return
        began_s = perf_counter()
        matchers = [(mask._matcher, row) for mask, row in quick]
        width = bits.shape[1]
        quick[0][0]._executor.unsafe_compute_mask_ptr(matchers, bits.ctypes.data, width, len(bits))
        spent_s = perf_counter() - began_s - len(quick) * SHARED_CPU_S
        for mask, row in quick:
            mask._left_s = min(mask._left_s + MASK_CPU_S - max(0.0, spent_s), CHOICE_CPU_S)
            if mask._matcher.is_error():
                bits[row].fill(0)

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


# A grammar ready for use: makes the mask of one choice. Or why there is none.
CompiledGrammar = Callable[[], GrammarMask]
Made = CompiledGrammar | str


@dataclass(eq=False)
class Entry:
    """One grammar of one tenant, and how many wait for it."""

    promised: asyncio.Future[Made]
    waiters: int = 0


class GrammarQueue:
    """Grammars that wait for the thread that compiles them, and those that are done; one whose
    requests were all cancelled is not compiled.

    Tenants take turns, each with its oldest first: a new one waits for its own grammars and
    at most one of each other tenant. `build` runs in the thread; `begun` is what it was given last.
    """

    def __init__(self, build: Callable[[Grammar], Made]) -> None:
        self.begun: Grammar | None = None
        self._build = build
        self._thread = ThreadPoolExecutor(THREADS, thread_name_prefix="grammar")
        # By tenant, whose turn is next first; what is being compiled stays until it is done.
        self._waiting: dict[bytes, dict[Grammar, Entry]] = {}
        self._compiled: Entry | None = None
        self._kept: OrderedDict[Grammar, Made] = OrderedDict()

    def find(self, grammar: Grammar) -> Made | None:
        if grammar in self._kept:
            self._kept.move_to_end(grammar)
        return self._kept.get(grammar)

    async def make(self, tenant: bytes, grammar: Grammar) -> Made:
        """What is made of it once it is its turn; raises `JobRefused` (full)."""
        entry = self._entry(tenant, grammar)
        entry.waiters += 1
        self._begin()
        try:
            # Others may wait for the same grammar, so one that leaves does not end the work.
            return await asyncio.shield(entry.promised)
        finally:
            entry.waiters -= 1
            if not entry.waiters and entry is not self._compiled:
                mine = self._waiting.get(tenant, {})
                if mine.get(grammar) is entry:
                    del mine[grammar]
                    if not mine:
                        del self._waiting[tenant]

    def _entry(self, tenant: bytes, grammar: Grammar) -> Entry:
        mine = self._waiting.get(tenant, {})
        if grammar not in mine:
            if len(mine) >= TENANT_QUEUE_MAX:
                raise JobRefused("full", f"{len(mine)} grammars of this tenant wait")
            if (waiting := sum(map(len, self._waiting.values()))) >= QUEUE_MAX:
                raise JobRefused("full", f"{waiting} grammars of all tenants wait")
            mine[grammar] = Entry(asyncio.get_running_loop().create_future())
            self._waiting[tenant] = mine
        return mine[grammar]

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        for mine in self._waiting.values():
            for entry in mine.values():
                entry.promised.cancel()
        self._waiting.clear()

    def _begin(self) -> None:
        while self._waiting and self._compiled is None:
            tenant, mine = next(iter(self._waiting.items()))
            grammar = next(iter(mine))
            made = self.find(grammar)
            if made is not None:
                # Another tenant has had the same one compiled.
                self._take(tenant, grammar).set_result(made)
                continue
            self._compiled, self.begun = mine[grammar], grammar
            work = asyncio.get_running_loop().run_in_executor(self._thread, self._build, grammar)
            work.add_done_callback(partial(self._done, tenant, grammar))

    def _done(self, tenant: bytes, grammar: Grammar, work: asyncio.Future[Made]) -> None:
        self._compiled = None
        if tenant not in self._waiting:
            return  # Closed since.
        promised = self._take(tenant, grammar)
        if (error := work.exception()) is not None:
            promised.set_exception(error)
        else:
            promised.set_result(work.result())
            self._kept[grammar] = work.result()
            if len(self._kept) > CACHE_MAX:
                self._kept.popitem(last=False)
        self._begin()

    def _take(self, tenant: bytes, grammar: Grammar) -> asyncio.Future[Made]:
        mine = self._waiting.pop(tenant)
        entry = mine.pop(grammar)
        if mine:
            self._waiting[tenant] = mine  # Its next turn comes after all others'.
        return entry.promised


class GrammarCompiler:
    """Compiles for one model; keeps what was used last, refusals too, for all tenants.

    Raises ValueError for a tokenizer that llguidance cannot read.
    """

    def __init__(self, tokenizer: Path, *, vocab_size: int, eos: Collection[int]) -> None:
        self._tokenizer = LLTokenizer(
            tokenizer.read_text(encoding="utf-8"), n_vocab=vocab_size, eos_token=sorted(eos)
        )
        self._eos = frozenset(eos)
        self._executor = LLExecutor(min(MASK_THREADS_MAX, os.cpu_count() or 1))
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

    async def _made(self, grammar: Grammar, tenant: bytes) -> Made:
        try:
            async with asyncio.timeout(COMPILE_S_MAX):
                return await self._queue.make(tenant, grammar)
        except TimeoutError:
            if grammar != self._queue.begun:
                # Held up by others, which says nothing about this one.
                raise JobRefused("full", "other grammars are being compiled") from None
            return f"it was not compiled within {COMPILE_S_MAX:g} s"

    def _build(self, grammar: Grammar) -> Made:
        """The compiled grammar, or why there is none; runs in a thread."""
        try:
            source = _source(grammar)
        except ValueError as error:
            return _reason(str(error))
        start = LLMatcher(self._tokenizer, source, log_level=0, limits=LIMITS)
        problem = start.get_error() or self._trial(start.deep_copy())
        if problem:
            return _reason(problem)
        return lambda: GrammarMask(start.deep_copy(), self._eos, self._executor)

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
