"""Which rows a transaction may see: `SET LOCAL app.orgs` and `app.person`, read by row policies.

Without a scope the app's role sees no row of a protected table.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from django.db import connection, transaction

ORGANIZATIONS, PERSON = "app.orgs", "app.person"
_WRITE = "SELECT set_config(%s, %s, true)"
_REPLACE = (
    "WITH before AS MATERIALIZED (SELECT coalesce(current_setting(%s, true), '') AS value)"
    " SELECT value, set_config(%s, %s, true) FROM before"
)


@contextmanager
def organization_scope(ids: Iterable[uuid.UUID]) -> Iterator[None]:
    """A transaction that sees and writes rows of these organizations and of no other.

    Scopes nest: the inner one replaces the outer until it ends.
    """
    with _set(ORGANIZATIONS, "{" + ",".join(str(one) for one in ids) + "}"):
        yield


@contextmanager
def person_scope(user_id: uuid.UUID) -> Iterator[None]:
    """A transaction that also sees in which organizations this user is a member."""
    with _set(PERSON, str(user_id)):
        yield


@contextmanager
def _set(name: str, value: str) -> Iterator[None]:
    nested = connection.in_atomic_block
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_REPLACE, [name, name, value])
        outer = cursor.fetchone()[0]
        yield
        # The end of a transaction or the rollback to a savepoint restores it by itself.
        if nested:
            cursor.execute(_WRITE, [name, outer])
