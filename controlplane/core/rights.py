"""Which rights a change was allowed by, so that its kept answer is given to those alone who have
them still. `tenants.access` notes each that it finds, and looks again when it is asked to.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.utils.module_loading import import_string

from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action

# Whose, to do what, and in which organization; in none where it is of the installation.
Right = tuple[uuid.UUID | None, Action, uuid.UUID | None]
# By name, as middleware is: this layer knows nothing of those above it.
REQUIRE = "controlplane.tenants.access.require"
_noted: ContextVar[dict[Right, None] | None] = ContextVar("rights_noted", default=None)


@contextmanager
def rights_noted() -> Iterator[dict[Right, None]]:
    """Collect what is allowed within; in its order, each once."""
    noted: dict[Right, None] = {}
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def right_note(actor: Actor, action: Action, organization: uuid.UUID | None) -> None:
    noted = _noted.get()
    if noted is not None:
        noted[actor.actor_id, action, organization] = None


def rights_json(noted: dict[Right, None], caller: uuid.UUID | None) -> list[list[str | None]]:
    """Those of the caller, as a row keeps them; a stranger has none."""
    return [
        [action.value, str(where) if where else None]
        for whose, action, where in noted
        if whose == caller and caller is not None
    ]


def rights_require(actor: Actor, kept: list[Any]) -> None:
    """Return if all of them are allowed now; raises as `tenants.access.require` does."""
    require = import_string(REQUIRE)
    for action, where in kept:
        require(actor, Action(action), uuid.UUID(where) if where else None)
