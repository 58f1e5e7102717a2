"""A form that is sent twice makes one thing: a unique constraint of its table decides."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError
from psycopg.errors import UniqueViolation


class AlreadyCreated(Exception):
    """This form was sent before and has made what it asks for."""


@contextmanager
def once(constraint: str) -> Iterator[None]:
    """Around a transaction: raises AlreadyCreated where it breaks this constraint."""
    try:
        yield
    except IntegrityError as error:
        cause = error.__cause__
        if isinstance(cause, UniqueViolation) and cause.diag.constraint_name == constraint:
            raise AlreadyCreated from error
        raise
