"""How far a thing holds that, once it fails, never holds again: by doubling, then halving."""

from collections.abc import Callable


def last_true(most: int, same: Callable[[int, int], bool]) -> int:
    """The largest n up to `most` for which `same` holds of the range from 0 to n.

    `same(low, high)` is asked of ranges whose beginning is known to hold.
    """
    low, stride = 0, 1
    while low < most and same(low, min(low + stride, most)):
        low = min(low + stride, most)
        stride *= 2
    high = min(low + stride, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if same(low, middle):
            low = middle
        else:
            high = middle
    return low
