"""What the size classifier sees of a request: a number for each feature, and its words.

Counts, and words of the last question alone, so that a look costs microseconds however long a
prompt is. Words are English; for other languages length and structure are what is left.
"""

import re
from collections.abc import Callable, Sequence
from math import log2
from pathlib import Path
from typing import NamedTuple

import msgspec

# Of a question its beginning and its end are read: between them stands mostly what it is about.
QUESTION_CHARS_MAX = 2_000
COUNT_MAX = 8
SHORT_WORDS = 14
SHORT_OUTPUT_TOKENS = 64
LONG_OUTPUT_TOKENS = 2_048
CODE_SHARE = 0.03
MATH_MIN = 3

WORDS = Path(__file__).with_name("words.json")
_LISTS = msgspec.json.decode(WORDS.read_bytes(), type=dict[str, frozenset[str]])
# A question that begins so, with one word or two, asks for something that stands somewhere.
_LOOKUPS = _LISTS.pop("lookup")
_WORD = re.compile(r"[a-z][a-z'-]*")
_ITEM = re.compile(r"^\s{0,4}(?:[-*•]|\d{1,2}[.)])\s", re.MULTILINE)
_CODE_MARKS = "{};=<>()[]_"
_MATH_MARKS = "∑∫√≤≥≠∀∃→∈^\\"
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


def _counted(one: str, many: str) -> Callable[[AskShape, float], str]:
    def words(_: AskShape, value: float) -> str:
        return f"no {many}" if value < 1 else one if value == 1 else f"{value:.0f} {many}"

    return words


def _flag(yes: str, no: str) -> Callable[[AskShape, float], str]:
    return lambda _, value: yes if value else no


FEATURES: tuple[Feature, ...] = (
    Feature("prompt", lambda shape, _: f"{shape.prompt_tokens:,} tokens"),
    Feature("question", lambda _, value: f"question of {2**value - 1:,.0f} words"),
    Feature("code_blocks", _counted("code block", "code blocks")),
    Feature("code", _flag("code in the question", "no code in the question")),
    Feature("tools", lambda shape, _: _counted("1 tool", "tools")(shape, shape.tools)),
    Feature(
        "tool_results",
        lambda shape, _: _counted("1 tool result", "tool results")(shape, shape.tool_results),
    ),
    Feature("schema", _flag("schema", "no schema")),
    Feature("turns", lambda shape, _: _counted("1 turn", "turns")(shape, shape.turns)),
    Feature("short_output", _flag("short answer asked for", "no short answer asked for")),
    Feature("long_output", _flag("long answer asked for", "no long answer asked for")),
    Feature("effort_high", _flag("high effort", "no high effort")),
    Feature("effort_low", _flag("low effort", "no low effort")),
    Feature("reasoning", _counted("1 word of reasoning", "words of reasoning")),
    Feature("building", _counted("1 word of building", "words of building")),
    Feature("simple", _counted("1 word of simple tasks", "words of simple tasks")),
    Feature("digest", _counted("1 word of rewriting", "words of rewriting")),
    Feature("limits", _counted("1 constraint", "constraints")),
    Feature("lookup", _flag("short lookup", "no short lookup")),
    Feature("math", _flag("mathematics", "no mathematics")),
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
    known = set(words)
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
        float(short and not _LOOKUPS.isdisjoint((words[0], " ".join(words[:2])))),
        float(sum(map(question.count, _MATH_MARKS)) >= MATH_MIN),
        float(min(parts, COUNT_MAX)),
        float(min(shape.images, COUNT_MAX)),
    )


def told(shape: AskShape, values: Sequence[float], places: Sequence[int]) -> tuple[str, ...]:
    """The features at these places in words."""
    return tuple(FEATURES[place].words(shape, values[place]) for place in places)
