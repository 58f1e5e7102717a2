"""Old rows dropped bite by bite: each a short transaction, so many in a run."""

from collections.abc import Callable


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
