"""Evaluation of routing rules: pure, so that a dry run and the hot path cannot disagree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class Rule(Protocol):
    """What a rule matches on and where it sends; None matches everything."""

    @property
    def alias(self) -> str | None: ...
    @property
    def project(self) -> str | None: ...
    @property
    def model(self) -> str: ...


RuleT = TypeVar("RuleT", bound=Rule)


def first_match(rules: Iterable[RuleT], alias: str, project: str) -> RuleT | None:
    """The first rule that matches a model name as the client wrote it, for a project."""
    for rule in rules:
        if rule.alias in (None, alias) and rule.project in (None, project):
            return rule
    return None
