"""Statements in SQL, within whatever transaction is open."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection

Values = Sequence[Any] | Mapping[str, Any]


def rows(query: str, values: Values = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, values or None)
        return list(cursor.fetchall())


def value(query: str, values: Values = ()) -> Any:
    """The only column of the only row."""
    ((found,),) = rows(query, values)
    return found
