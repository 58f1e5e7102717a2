"""What the generator makes: exchanges (one question, one answer) and dialogues of several turns.

The helpers that vary the wording live here too; what is said lives in the family files.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

HELD_OUT_ONE_IN = 20
HELD_OUT_LENGTH_MIN = 20

OPENERS = (
    "please tell me: ",
    "hey, ",
    "hi, ",
    "ok, ",
    "quick question: ",
    "so, ",
    "and ",
    "well, ",
)
CLOSERS = (" please", " thanks", ", please", " thank you")


@dataclass(frozen=True)
class Exchange:
    """One question and its answer; `must` are the pieces a right answer contains."""

    question: str
    answer: str
    must: tuple[str, ...] = ()


@dataclass(frozen=True)
class Turn:
    role: str
    text: str


@dataclass(frozen=True)
class Dialogue:
    """A whole conversation, ending with an assistant turn, and what that turn must contain."""

    family: str
    turns: tuple[Turn, ...]
    must: tuple[str, ...]

    @property
    def held_out(self) -> bool:
        """True when one of its questions is kept away from training, for the evaluation."""
        return any(is_held_out(turn.text) for turn in self.turns if turn.role == "user")


Family = Callable[[Random], Exchange]


def is_held_out(question: str) -> bool:
    """One in twenty questions, by a hash of the text; very short ones are always trained on."""
    if len(question) < HELD_OUT_LENGTH_MIN:
        return False
    return zlib.crc32(question.encode()) % HELD_OUT_ONE_IN == 0


def casual(rng: Random, question: str) -> str:
    """The same question as people type it: other case, no mark at the end, a polite word."""
    if "\n" in question:
        return question
    if rng.random() < 0.12:
        question = rng.choice(OPENERS) + lower_first(question)
    if rng.random() < 0.08 and question[-1] in ".?":
        question = question[:-1] + rng.choice(CLOSERS) + question[-1]
    if rng.random() < 0.15:
        question = question.rstrip(".?! ")
    if rng.random() < 0.18:
        question = question.lower()
    elif rng.random() < 0.3:
        question = upper_first(question)
    return question


def upper_first(text: str) -> str:
    return text[:1].upper() + text[1:]


def lower_first(text: str) -> str:
    """The text with a small first letter, unless the first word is an abbreviation or "I"."""
    word = text.split(" ", 1)[0]
    if word == "I" or (len(word) > 1 and word.isupper()):
        return text
    return text[:1].lower() + text[1:]


def listed(items: Sequence[str]) -> str:
    """The items as English lists them: a, b and c."""
    if len(items) == 1:
        return items[0]
    return ", ".join(items[:-1]) + " and " + items[-1]


def with_articles(text: str) -> str:
    """The text with "an" where a vowel follows."""
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
