"""How pages read telemetry: in the scope of organizations, and never for longer than a bound."""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from django.db import OperationalError, connection
from psycopg.errors import QueryCanceled
from rest_framework.exceptions import APIException

from controlplane.core.permissions import organization_scope

# One long snapshot keeps dead versions of the hot budget rows alive, so no page reads for long.
READ_MS_MAX = 4_000


class TooMuchToRead(APIException):
    """The result was not read within the bound; 503 where an API operation does not catch it."""

    status_code = 503
    default_detail = "The query timed out. Select a smaller range."


@contextmanager
def bounded_read(organizations: Iterable[uuid.UUID], ms_max: int = READ_MS_MAX) -> Iterator[None]:
    """A short transaction that sees only these organizations; raises TooMuchToRead when late."""
    try:
        with organization_scope(organizations):
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(ms_max)])
            yield
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise TooMuchToRead from error
        raise
