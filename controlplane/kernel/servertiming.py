"""`Server-Timing` as a client may send it: what it did before the call, and how long that took.

Only names and durations are read. A description is free text, so it is left where it is.
"""

import re

import msgspec

ENTRIES_MAX = 16
NAME_CHARS_MAX = 40
DURATION_MS_MAX = 24 * 60 * 60 * 1000.0
HEADER_CHARS_MAX = 1_024
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A parameter's value may be quoted, and may hold commas and semicolons then. Possessive, so that no
# header takes more than one pass.
_ENTRY = re.compile(r'(?:[^,"]++|"(?:[^"\\]|\\.)*+"?+)++')
_PARAMETER = re.compile(r';\s*+([A-Za-z-]++)\s*+=\s*+("(?:[^"\\]|\\.)*+"?+|[^;]*+)')
_MILLISECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


class Before(msgspec.Struct, frozen=True):
    """One thing that a client did."""

    name: str
    dur_ms: float


def read_server_timing(header: str) -> list[Before]:
    """At most `ENTRIES_MAX`, in order; what has no name or no credible duration is left out."""
    found: list[Before] = []
    for entry in _ENTRY.findall(header[:HEADER_CHARS_MAX]):
        name = entry.partition(";")[0].strip()
        given = {word.lower(): value for word, value in _PARAMETER.findall(entry)}
        duration = given.get("dur", "").strip().strip('"')
        if len(name) > NAME_CHARS_MAX or not _TOKEN.fullmatch(name):
            continue
        if _MILLISECONDS.fullmatch(duration) and float(duration) <= DURATION_MS_MAX:
            found.append(Before(name, float(duration)))
        if len(found) == ENTRIES_MAX:
            break
    return found
