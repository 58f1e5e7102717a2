"""Sentences for codes and causes that records name, from `wordings.json`."""

from pathlib import Path

import msgspec


class Wordings(msgspec.Struct, frozen=True):
    """`refusals` by error code, `lacks` by what the fleet lacked; `causes` of prompt tokens that
    were not in the cache, each with what happened and what can be done about it.
    """

    refusals: dict[str, str]
    lacks: dict[str, str]
    causes: dict[str, tuple[str, str]]


_FILE = Path(__file__).with_suffix(".json")
WORDINGS = msgspec.json.decode(_FILE.read_bytes(), type=Wordings)
