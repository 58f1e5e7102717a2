"""Work that periodic jobs do on many things: one that fails never keeps the others back."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import structlog
from django.db import connection

log = structlog.get_logger(__name__)
Item = TypeVar("Item")
Result = TypeVar("Result")


def each_alone(job: str, items: Iterable[Item], act: Callable[[Item], Result]) -> list[Result]:
    """What came of each; a failure is an error in the log, and its item is the next run's again."""
    done = []
    for item in items:
        try:
            done.append(act(item))
        except Exception:  # Process edge: whatever is wrong with one, the others go on.
            log.exception("job_item_failed", job=job, item=str(item))
            connection.close_if_unusable_or_obsolete()
    return done


def drop_in_bites(bite: Callable[[int], int], *, rows_max: int, bites_max: int) -> int:
    """Rows dropped; `bite` drops at most `rows_max` and returns how many.

    Ends with the first bite that was not full, or after `bites_max`: what is left then is the next
    run's, and `rows_max * bites_max` must be more than comes to be between two runs.
    """
    gone = 0
    for _ in range(bites_max):
        dropped = bite(rows_max)
        gone += dropped
        if dropped < rows_max:
            break
    return gone
