"""Which organizations' rows a transaction may see: `SET LOCAL app.orgs`, read by the row policies.

Without a scope the app's role sees no row of a protected table.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from django.db import connections, transaction

DEFAULT = "default"
_READ = "SELECT coalesce(current_setting('app.orgs', true), '')"
_WRITE = "SELECT set_config('app.orgs', %s, true)"


@contextmanager
def organization_scope(ids: Iterable[uuid.UUID], using: str = DEFAULT) -> Iterator[None]:
    """A transaction that sees and writes rows of these organizations and of no other.

    Scopes nest: the inner one replaces the outer until it ends.
    """
    wanted = "{" + ",".join(str(one) for one in ids) + "}"
    with transaction.atomic(using=using):
        with connections[using].cursor() as cursor:
            cursor.execute(_READ)
            outer = cursor.fetchone()[0]
            cursor.execute(_WRITE, [wanted])
        yield
        # An exception rolls back to the savepoint, which restores the outer scope by itself.
        with connections[using].cursor() as cursor:
            cursor.execute(_WRITE, [outer])
