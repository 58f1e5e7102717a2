"""One line of the authorization matrix, and who may be named in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.core.permissions import Action
from tests.core.callers import ALL, OPERATOR, SESSIONS, STAFF

PUBLIC = frozenset(ALL)
SIGNED_IN = frozenset(SESSIONS)
METRICS = frozenset({STAFF, OPERATOR, "metrics token"})


@dataclass(frozen=True)
class Route:
    """One operation: a method on a path of the URL conf."""

    method: str
    path: str
    needs: Action | frozenset[str]
    body: Mapping[str, Any] = field(default_factory=dict)
    query: str = ""
    but: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} /{self.path}"
