"""Regular expressions that are matched in time linear in the text: an automaton's states are made
as texts need them. What only a backtracking engine could match is refused.

A machine that reads backwards finds where matches begin, one that reads forwards how far each goes:
the longest wins. A match has at most `MATCH_CHARS_MAX` characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

PATTERN_CHARS_MAX = 256
MATCH_CHARS_MAX = 1_024
REPEATS_MAX = 256
STATES_MAX = 4_096
GROUPS_MAX = 32
# Transitions that a machine remembers; then it begins again.
REMEMBERED_MAX = 20_000
_TOKEN = re.compile(
    r"(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<either>\|)"
    r"|(?P<count>(?:[*+?]|\{\d+(?:,\d*)?\})\??)|(?P<at>\^|\$|\\[AbBZ])"
    r"|(?P<one>\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[dDsSwWtnrfv]|[^\w\s])|[^\\\[\](){}*+?|^$])",
    re.DOTALL,
)
_COUNT = re.compile(r"\{(\d+)(,?)(\d*)\}")
_COUNTS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_FLAG = "(?i)"
_NONE, _WORD, _OTHER = "", "w", "o"
Test = Callable[[str], object]


class PatternError(ValueError):
    """A pattern that cannot be used; the message says why, as a sentence."""


class _Node(NamedTuple):
    """A part of a pattern: `one` character, a place `at` something, `all` of its parts, `any` of
    them, or a repeated part.
    """

    kind: str
    test: Test | None = None
    at: str = ""
    parts: tuple[_Node, ...] = ()
    least: int = 1
    most: int | None = 1


class _Reader:
    """One pattern, read from the left."""

    def __init__(self, pattern: str) -> None:
        if not 0 < len(pattern) <= PATTERN_CHARS_MAX:
            raise PatternError(f"Must have 1 to {PATTERN_CHARS_MAX} characters.")
        self._flags = re.IGNORECASE if pattern.startswith(_FLAG) else 0
        self._text = pattern
        self._place = len(_FLAG) if self._flags else 0
        self._depth = 0

    def read(self) -> _Node:
        node = self._either()
        if self._place < len(self._text):
            raise self._unclear("has no '(' before it")
        return node

    def _unclear(self, why: str) -> PatternError:
        return PatternError(f"Character {self._place + 1} of the pattern {why}.")

    def _either(self) -> _Node:
        ways = [self._sequence()]
        while self._text[self._place : self._place + 1] == "|":
            self._place += 1
            ways.append(self._sequence())
        return ways[0] if len(ways) == 1 else _Node("any", parts=tuple(ways))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._place < len(self._text):
            token = _TOKEN.match(self._text, self._place)
            if token is None:
                raise self._unclear("begins nothing that is known here")
            if token.lastgroup in ("close", "either"):
                break
            if token.lastgroup == "count":
                if not parts or parts[-1].kind in ("repeat", "at"):
                    raise self._unclear("repeats nothing")
                least, most = self._bounds(token[0])
                parts[-1] = _Node("repeat", parts=(parts[-1],), least=least, most=most)
            self._place = token.end()
            if token.lastgroup == "open":
                parts.append(self._group())
            elif token.lastgroup == "at":
                parts.append(_Node("at", at={"A": "^", "Z": "$"}.get(token[0][-1], token[0][-1])))
            elif token.lastgroup in ("set", "one"):
                parts.append(_Node("one", test=self._test(token[0])))
        return _Node("all", parts=tuple(parts))

    def _group(self) -> _Node:
        self._depth += 1
        if self._depth > GROUPS_MAX:
            raise self._unclear(f"is inside more than {GROUPS_MAX} groups")
        if self._text.startswith("?", self._place):
            raise self._unclear("begins a group that is not supported: use (…) or (?:…)")
        node = self._either()
        if not self._text.startswith(")", self._place):
            raise self._unclear("should be a ')'")
        self._place += 1
        self._depth -= 1
        return node

    def _bounds(self, text: str) -> tuple[int, int | None]:
        if text[0] in _COUNTS:
            return _COUNTS[text[0]]
        found = _COUNT.match(text)
        assert found is not None
        least = int(found[1])
        most = least if not found[2] else int(found[3]) if found[3] else None
        if max(least, most or 0) > REPEATS_MAX or (most is not None and most < least):
            raise self._unclear(f"repeats more than {REPEATS_MAX} times, or less than its least")
        return least, most

    def _test(self, text: str) -> Test:
        try:
            return re.compile(text, self._flags | re.DOTALL).fullmatch
        except re.error as error:
            raise self._unclear(f"is before a bad set: {error.msg}") from error


class _Graph:
    """States, each with its steps: a test of a character or of a place, or neither, and where to.

    State 0 accepts; `labels` are the states that say which pattern has matched.
    """

    def __init__(self, nodes: Sequence[_Node], *, backwards: bool) -> None:
        self._backwards = backwards
        self.steps: list[list[tuple[Test | None, str, int]]] = []
        self.labels: dict[int, int] = {}
        starts = []
        for number, node in enumerate(nodes):
            end = self._state()
            self.labels[end] = number
            starts.append(self._before(node, end))
        self.starts = frozenset(starts)

    def closure(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """All that is reached without a character, between one of a kind and one of another."""
        left, right = (after, before) if self._backwards else (before, after)
        edge = (left == _WORD) != (right == _WORD)
        holds = {"": True, "^": not left, "$": not right, "b": edge, "B": not edge}
        found, open_ = set(states), list(states)
        while open_:
            for test, at, to in self.steps[open_.pop()]:
                if test is None and to not in found and holds[at]:
                    found.add(to)
                    open_.append(to)
        return found

    def _state(self) -> int:
        if len(self.steps) >= STATES_MAX:
            raise PatternError("The pattern is too large: repeat less.")
        self.steps.append([])
        return len(self.steps) - 1

    def _before(self, node: _Node, end: int) -> int:
        """The state from which the node leads to `end`."""
        if node.kind == "all":
            for part in node.parts if self._backwards else reversed(node.parts):
                end = self._before(part, end)
            return end
        if node.kind == "repeat":
            return self._repeated(node, end)
        start = self._state()
        if node.kind == "any":
            self.steps[start] = [(None, "", self._before(part, end)) for part in node.parts]
        else:
            self.steps[start] = [(node.test, node.at, end)]
        return start

    def _repeated(self, node: _Node, end: int) -> int:
        (part,) = node.parts
        if node.most is None:
            loop = self._state()
            self.steps[loop] = [(None, "", self._before(part, loop)), (None, "", end)]
            start = loop
        else:
            start = end
            for _ in range(node.most - node.least):
                inner, outer = self._before(part, start), self._state()
                self.steps[outer] = [(None, "", inner), (None, "", end)]
                start = outer
        for _ in range(node.least):
            start = self._before(part, start)
        return start


class _State:
    """What a machine can be in after a character of a kind; `ends` by the kind that follows."""

    __slots__ = ("before", "ends", "graph", "next")

    def __init__(self, graph: frozenset[int], before: str) -> None:
        self.graph = graph
        self.before = before
        self.next: dict[str, tuple[int | None, _State]] = {}
        self.ends: dict[str, int | None] = {}


class _Machine:
    """A graph as an automaton; one that `seeks` begins anew at each character."""

    def __init__(self, nodes: Sequence[_Node], *, backwards: bool, seeks: bool) -> None:
        self._graph = _Graph(nodes, backwards=backwards)
        self._seeks = seeks
        self._states: dict[tuple[frozenset[int], str], _State] = {}
        self._remembered = 0

    def begin(self, before: str) -> _State:
        return self._known(self._graph.starts, before)

    def step(self, state: _State, char: str) -> tuple[int | None, _State]:
        """Which pattern ends before the character, if one does, and what comes after it."""
        known = state.next.get(char)
        if known is not None:
            return known
        kind = kind_of(char)
        reached = self._graph.closure(state.graph, state.before, kind)
        steps = self._graph.steps
        after = {to for at in reached for test, _, to in steps[at] if test and test(char)}
        if self._seeks:
            after |= self._graph.starts
        if self._remembered >= REMEMBERED_MAX:
            self._states, self._remembered = {}, 0
        self._remembered += 1
        found = state.next[char] = self._label(reached), self._known(frozenset(after), kind)
        return found

    def end(self, state: _State, after: str) -> int | None:
        """Which pattern ends there, before a character of a kind."""
        if after not in state.ends:
            reached = self._graph.closure(state.graph, state.before, after)
            state.ends[after] = self._label(reached)
        return state.ends[after]

    def _label(self, reached: set[int]) -> int | None:
        labels = self._graph.labels
        return min((labels[at] for at in reached if at in labels), default=None)

    def _known(self, graph: frozenset[int], before: str) -> _State:
        return self._states.setdefault((graph, before), _State(graph, before))


class PatternSet:
    """Patterns that are searched for together; raises `PatternError`."""

    def __init__(self, patterns: Sequence[str]) -> None:
        nodes = [_Reader(pattern).read() for pattern in patterns]
        self._seeker = _Machine(nodes, backwards=True, seeks=True)
        self._follower = _Machine(nodes, backwards=False, seeks=False)
        if self._follower.end(self._follower.begin(_NONE), _NONE) is not None:
            raise PatternError("The pattern matches the empty text.")

    def find(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Number of the pattern, start and end of each match, from the left, none in another."""
        reached = 0
        for start in reversed(self._starts(text)):
            if start >= reached:
                number, end = self._longest(text, start)
                if number is not None and end > start:
                    reached = end
                    yield number, start, end

    def _starts(self, text: str) -> list[int]:
        """Where matches begin, from the right."""
        found: list[int] = []
        step, state = self._seeker.step, self._seeker.begin(_NONE)
        for place in range(len(text) - 1, -1, -1):
            char = text[place]
            label, state = state.next.get(char) or step(state, char)
            if label is not None:
                found.append(place + 1)
        if self._seeker.end(state, _NONE) is not None:
            found.append(0)
        return found

    def _longest(self, text: str, start: int) -> tuple[int | None, int]:
        number, end = None, start
        step = self._follower.step
        state = self._follower.begin(kind_of(text[start - 1 : start]))
        most = min(len(text), start + MATCH_CHARS_MAX)
        for place in range(start, most):
            char = text[place]
            label, state = state.next.get(char) or step(state, char)
            if label is not None:
                number, end = label, place
            if not state.graph:
                return number, end
        label = self._follower.end(state, kind_of(text[most : most + 1]))
        return (number, end) if label is None else (label, most)


def kind_of(char: str) -> str:
    """What `\\b` tells apart: a character of a word, another, or none."""
    if not char:
        return _NONE
    return _WORD if char.isalnum() or char == "_" else _OTHER
