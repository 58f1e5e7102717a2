"""Finds our credentials in text and files, offline: a pattern, and the checksum that each carries.

A finding with a right checksum is a real credential, or was one; a wrong one is a typo or made up.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from controlplane.kernel.keys import format as keys

PREFIXES = (keys.USER_PREFIX, keys.NODE_PREFIX, keys.ENROL_PREFIX, keys.ADMIN_PREFIX)
# For scanners of other makers, too; docs/keys-and-limits.md prints it.
PATTERN = (
    rf"(?:{'|'.join(PREFIXES)})"
    rf"_[0-9A-Za-z]{{{keys.ID_CHARS}}}_[0-9A-Za-z]{{{keys.SECRET_CHARS}}}_[0-9A-Za-z]{{{keys.CHECKSUM_CHARS}}}"
)
_FIND = re.compile(rf"(?<![0-9A-Za-z]){PATTERN}(?![0-9A-Za-z])")
# Longer lines are looked at in parts, which overlap by more than a credential is long.
LINE_CHARS_MAX = 1 << 20
OVERLAP_CHARS = 128


class FoundCredential(NamedTuple):
    """One credential in a text: where, which, and whether its checksum is right."""

    place: str
    line: int
    credential: keys.Credential
    genuine: bool


def find_credentials(text: str, place: str = "-", line: int = 1) -> Iterator[FoundCredential]:
    for number, part in enumerate(text.splitlines(), line):
        for match in _FIND.finditer(part):
            yield _finding(match[0], place, number)


def scan(path: Path) -> Iterator[FoundCredential]:
    """The same of a file, or of all files below a folder; what cannot be read is passed."""
    if path.is_dir():
        for each in sorted(path.rglob("*")):
            if each.is_file() and not each.is_symlink():
                yield from scan(each)
        return
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            number, rest = 1, ""
            while part := lines.readline(LINE_CHARS_MAX):
                yield from find_credentials(rest + part, str(path), number)
                whole = part.endswith("\n")
                number, rest = number + whole, "" if whole else part[-OVERLAP_CHARS:]
    except OSError:
        return


def _finding(text: str, place: str, line: int) -> FoundCredential:
    for prefix in PREFIXES:
        found = keys.parse_credential(text, prefix)
        if found is not None:
            return FoundCredential(place, line, found, genuine=True)
    prefix = next(one for one in PREFIXES if text.startswith(one))
    key_id = text.removeprefix(prefix).split("_")[1]
    return FoundCredential(place, line, keys.Credential(prefix, key_id, text), genuine=False)
