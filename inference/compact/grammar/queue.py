"""Grammars that wait for the one thread that compiles them, tenant by tenant, and those that are
done. A grammar whose requests were all cancelled is not compiled.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from inference.contract.grammar import Grammar
from inference.errors import JobRefused

THREADS = 1
TENANT_QUEUE_MAX = 32
QUEUE_MAX = 512
CACHE_MAX = 64

Made = TypeVar("Made")


@dataclass(eq=False)
class Entry(Generic[Made]):
    """One grammar of one tenant, and how many wait for it."""

    promised: asyncio.Future[Made]
    waiters: int = 0


class GrammarQueue(Generic[Made]):
    """Tenants take turns, each with its oldest first: a new one waits for its own grammars and
    at most one of each other tenant. `build` runs in the thread; `begun` is what it was given last.
    """

    def __init__(self, build: Callable[[Grammar], Made]) -> None:
        self.begun: Grammar | None = None
        self._build = build
        self._thread = ThreadPoolExecutor(THREADS, thread_name_prefix="grammar")
        # By tenant, whose turn is next first; what is being compiled stays until it is done.
        self._waiting: dict[bytes, dict[Grammar, Entry[Made]]] = {}
        self._compiled: Entry[Made] | None = None
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
                self._drop(tenant, grammar, entry)

    def _entry(self, tenant: bytes, grammar: Grammar) -> Entry[Made]:
        mine = self._waiting.get(tenant, {})
        if grammar not in mine:
            if len(mine) >= TENANT_QUEUE_MAX:
                raise JobRefused("full", f"{len(mine)} grammars of this tenant wait")
            if (waiting := sum(map(len, self._waiting.values()))) >= QUEUE_MAX:
                raise JobRefused("full", f"{waiting} grammars of all tenants wait")
            mine[grammar] = Entry(asyncio.get_running_loop().create_future())
            self._waiting[tenant] = mine
        return mine[grammar]

    def _drop(self, tenant: bytes, grammar: Grammar, entry: Entry[Made]) -> None:
        mine = self._waiting.get(tenant, {})
        if mine.get(grammar) is entry:
            del mine[grammar]
            if not mine:
                del self._waiting[tenant]

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
