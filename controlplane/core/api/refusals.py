"""Refusals that leave a row in the audit log, whatever is rolled back with them."""

from collections.abc import Callable
from typing import NoReturn

from django.core.exceptions import ObjectDoesNotExist, PermissionDenied


class KeptRefusal(PermissionDenied):
    """The answer is no, and that someone tried is what the log is for; `told` writes the row."""

    def __init__(self, message: str, told: Callable[[], None]) -> None:
        super().__init__(message)
        self.told = told


class KeptAbsence(ObjectDoesNotExist):
    """The same where the answer is that there is no such thing."""

    def __init__(self, message: str, told: Callable[[], None]) -> None:
        super().__init__(message)
        self.told = told


def refuse_kept(message: str, told: Callable[[], None]) -> NoReturn:
    """Write the row and refuse; whoever rolls the transaction back around it writes it again."""
    told()
    raise KeptRefusal(message, told)
