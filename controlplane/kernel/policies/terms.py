"""What a project may demand of its requests, as it is kept, sent and read by gateways."""

from functools import cached_property
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from controlplane.kernel.policies.pattern_set import PATTERN_CHARS_MAX, PatternError, PatternSet
from controlplane.kernel.policies.personal import Personal

PATTERNS_MAX = 16
TOKENS_MAX = 2**31
# As many as a request may offer, and an answer may have.
TOOLS_MAX = CALLS_MAX = 128

Action = Literal["mask", "refuse"]


class OwnPattern(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A regular expression of RE2; placeholders bear the `name` in upper case."""

    name: Annotated[str, Meta(pattern="^[a-z][a-z0-9_]{0,23}$")]
    pattern: Annotated[str, Meta(min_length=1, max_length=PATTERN_CHARS_MAX)]
    action: Action = "mask"


class Policies(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    dict=True,
):
    """A project's; None and empty where it demands nothing.

    A request that names no bound for its output is refused where `require_max_tokens`, one that
    does not stream where its answer may have more than `unstreamed_tokens_max` tokens, all choices
    together, and one that offers more than `tools_max` tools. A choice ends with the last of
    `calls_max` tool calls. In what is sent to a model `personal` data of a kind, and what matches
    one of `patterns`, are masked or refused.
    """

    require_max_tokens: bool = False
    unstreamed_tokens_max: Annotated[int, Meta(ge=1, le=TOKENS_MAX)] | None = None
    tools_max: Annotated[int, Meta(ge=0, le=TOOLS_MAX)] | None = None
    calls_max: Annotated[int, Meta(ge=1, le=CALLS_MAX)] | None = None
    personal: dict[Personal, Action] = {}
    patterns: Annotated[tuple[OwnPattern, ...], Meta(max_length=PATTERNS_MAX)] = ()

    @property
    def reads(self) -> bool:
        """Whether the text of requests is looked at."""
        return bool(self.personal or self.patterns)

    @cached_property
    def pattern_set(self) -> PatternSet:
        """Its patterns as they are searched for; raises `PatternError` for those never checked."""
        return PatternSet([each.pattern for each in self.patterns])


def complaints(policies: Policies) -> dict[str, str]:
    """What is wrong with its patterns, by path; empty where all can be used."""
    found: dict[str, str] = {}
    names: set[str] = set()
    for number, own in enumerate(policies.patterns):
        try:
            PatternSet([own.pattern])
        except PatternError as error:
            found[f"patterns[{number}].pattern"] = str(error)
        if own.name in names:
            found[f"patterns[{number}].name"] = "Another pattern has this name."
        names.add(own.name)
    try:
        _ = found or policies.pattern_set
    except PatternError as error:
        found["patterns"] = str(error)
    return found
