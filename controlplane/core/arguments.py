"""Errors of services told as errors of a command's arguments, in one line, no traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError


@contextmanager
def arguments_named(**names: str) -> Iterator[None]:
    """Turn a ValidationError into a CommandError; `names` maps its fields to the arguments."""
    try:
        yield
    except ValidationError as error:
        told = (
            f"{names.get(field, field)}: {' '.join(messages)}"
            for field, messages in error.message_dict.items()
        )
        raise CommandError("; ".join(told)) from error
