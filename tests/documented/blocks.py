"""The fenced blocks and the commands in running text of the documentation."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# Directives of the generator of the site, whose build fails where one is wrong.
DIRECTIVE = "{"
PROGRAMS = ("sluice ", "python manage.py ", "python -m inference", "make ")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is where its fence stands."""

    file: str
    line: int
    language: str
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """How tables name it: its file and the first line of its text."""
        return self.file, self.text.partition("\n")[0].strip()


@cache
def documents() -> dict[str, str]:
    """The text of each document by its path from the root."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in found}


@cache
def blocks() -> tuple[Block, ...]:
    """All blocks that are not directives, in order."""
    return tuple(
        Block(
            name,
            text.count("\n", 0, match.start()) + 1,
            match[2].strip(),
            textwrap.dedent(match[3]),
        )
        for name, text in documents().items()
        for match in FENCE.finditer(text)
        if not match[2].startswith(DIRECTIVE)
    )


def named_commands() -> Iterator[tuple[str, str]]:
    """Documents and what they say in running text of our own programs."""
    for name, text in documents().items():
        for code in CODE.findall(FENCE.sub("", text)):
            if code.startswith(PROGRAMS):
                yield name, " ".join(code.split())
