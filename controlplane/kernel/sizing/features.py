"""What the size classifier sees of a request: a number for each feature, and its words.

Counts, and words of the last question alone, so that a look costs microseconds however long a
prompt is. Words are English; for other languages length and structure are what is left.
"""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import NamedTuple

import msgspec

# Of a question its beginning and its end are read: between them stands mostly what it is about.
QUESTION_CHARS_MAX = 2_000
COUNT_MAX = 8
SHORT_WORDS = 16
OPENING_WORDS = 8
SHORT_OUTPUT_TOKENS = 64
LONG_OUTPUT_TOKENS = 2_048
CODE_SHARE = 0.03

WORDS = Path(__file__).with_name("words.json")
_LISTS = msgspec.json.decode(WORDS.read_bytes(), type=dict[str, frozenset[str]])
# A short question that has one of these, or two in a row, asks for something that stands somewhere.
_LOOKUPS = _LISTS.pop("lookup")
_WORD = re.compile(r"[a-z][a-z'-]*")
_ITEM = re.compile(r"^\s{0,4}(?:[-*•]|\d{1,2}[.)])\s", re.MULTILINE)
_CODE_MARKS = "{};=<>()[]_"
_MATH_MARKS = "∑∫√≤≥≠∀∃∈^"
_HIGH, _LOW = frozenset({"high", "xhigh"}), frozenset({"none", "minimal", "low"})


class AskShape(msgspec.Struct, frozen=True, kw_only=True):
    """A request by its length and structure, with the text of its last `question`.

    `prompt_tokens` is what its size promises, `code_blocks` are those of its last turns,
    `tool_results` those in its history; `output_tokens` None where the client named no bound.
    """

    prompt_tokens: int
    question: str = ""
    code_blocks: int = 0
    turns: int = 1
    tools: int = 0
    tool_results: int = 0
    schema: bool = False
    output_tokens: int | None = None
    effort: str = ""
    images: int = 0


class Feature(NamedTuple):
    """Its name in the file of weights, and the words that a value is told by."""

    name: str
    words: Callable[[AskShape, float], str]


def _flag(words: str) -> Callable[[AskShape, float], str]:
    return lambda _, value: words


def _counted(one: str, many: str, field: str = "") -> Callable[[AskShape, float], str]:
    def words(shape: AskShape, value: float) -> str:
        number = getattr(shape, field) if field else value
        return one if number == 1 else f"{number:,.0f} {many}"

    return words


FEATURES: tuple[Feature, ...] = (
    Feature("prompt", _counted("1 token", "tokens", "prompt_tokens")),
    Feature("question", lambda _, value: f"question of {2**value - 1:,.0f} words"),
    Feature("code_blocks", _counted("code block", "code blocks")),
    Feature("code", _flag("code in the question")),
    Feature("tools", _counted("1 tool", "tools", "tools")),
    Feature("tool_results", _counted("1 tool result", "tool results", "tool_results")),
    Feature("schema", _flag("schema")),
    Feature("turns", _counted("1 turn", "turns", "turns")),
    Feature("short_output", _flag("short answer asked for")),
    Feature("long_output", _flag("long answer asked for")),
    Feature("effort_high", _flag("high effort")),
    Feature("effort_low", _flag("low effort")),
    Feature("reasoning", _counted("1 word of reasoning", "words of reasoning")),
    Feature("building", _counted("1 word of building", "words of building")),
    Feature("simple", _counted("1 word of simple tasks", "words of simple tasks")),
    Feature("digest", _counted("1 word of writing", "words of writing")),
    Feature("limits", _counted("1 constraint", "constraints")),
    Feature("lookup", _flag("short lookup")),
    Feature("math", _flag("mathematics")),
    Feature("parts", _counted("1 part", "parts")),
    Feature("images", _counted("image", "images")),
)


def features_of(shape: AskShape) -> tuple[float, ...]:
    """A value for each of `FEATURES`, in their order."""
    question = shape.question
    if len(question) > QUESTION_CHARS_MAX:
        half = QUESTION_CHARS_MAX // 2
        question = f"{question[:half]}\n{question[-half:]}"
    words = _WORD.findall(question.lower())
    known, first = set(words), words[:OPENING_WORDS]
    output, short = shape.output_tokens, 0 < len(words) <= SHORT_WORDS
    marks = sum(map(question.count, _CODE_MARKS))
    parts = len(_ITEM.findall(question)) + max(0, question.count("?") - 1)
    return (
        log2(1 + shape.prompt_tokens),
        log2(1 + len(words)),
        float(min(shape.code_blocks, COUNT_MAX)),
        float(marks > CODE_SHARE * len(question) + 2),
        log2(1 + shape.tools),
        log2(1 + shape.tool_results),
        float(shape.schema),
        log2(shape.turns or 1),
        float(output is not None and output <= SHORT_OUTPUT_TOKENS),
        float(output is not None and output >= LONG_OUTPUT_TOKENS),
        float(shape.effort in _HIGH),
        float(shape.effort in _LOW),
        *(float(min(len(known & listed), COUNT_MAX)) for listed in _LISTS.values()),
        float(short and not _LOOKUPS.isdisjoint((*first, *map(" ".join, pairwise(first))))),
        float(any(mark in question for mark in _MATH_MARKS)),
        float(min(parts, COUNT_MAX)),
        float(min(shape.images, COUNT_MAX)),
    )


def told(shape: AskShape, values: Sequence[float], places: Sequence[int]) -> tuple[str, ...]:
    """The features at these places in words."""
    return tuple(FEATURES[place].words(shape, values[place]) for place in places)
