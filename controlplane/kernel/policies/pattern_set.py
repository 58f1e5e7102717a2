"""Regular expressions that people write, matched by RE2 in time linear in the text."""

from collections.abc import Iterator, Sequence
from typing import Any

import re2

PATTERN_CHARS_MAX = 256
# What RE2 may take for the machine of a set; more is refused when it is saved.
MEMORY_BYTES_MAX = 4 << 20
_GROUP = "sluice_{}"


class PatternError(ValueError):
    """A pattern that cannot be used; the message says why, as a sentence."""


class PatternSet:
    """Patterns that are searched for together; raises `PatternError`."""

    def __init__(self, patterns: Sequence[str]) -> None:
        for pattern in patterns:
            if not 0 < len(pattern) <= PATTERN_CHARS_MAX:
                raise PatternError(f"Must have 1 to {PATTERN_CHARS_MAX} characters.")
            if _compiled(f"(?:{pattern})").fullmatch("") is not None:
                raise PatternError("The pattern matches the empty text.")
        self._numbers = {_GROUP.format(number): number for number in range(len(patterns))}
        named = zip(self._numbers, patterns, strict=True)
        self._one = _compiled("|".join(f"(?P<{name}>{pattern})" for name, pattern in named))

    def find(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Number of the pattern, start and end of each match, from the left, none in another; of
        several at a place that of the first pattern counts.
        """
        for found in self._one.finditer(text):
            start, end = found.span()
            if start < end:
                groups = found.groupdict()
                name = next(name for name in self._numbers if groups[name] is not None)
                yield self._numbers[name], start, end


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.dot_nl, options.log_errors, options.max_mem = True, False, MEMORY_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        told = error.args[0]
        said = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
        raise PatternError(f"RE2 does not take the pattern: {said}.") from error
