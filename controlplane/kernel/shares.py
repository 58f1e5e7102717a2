"""How much of what all share one of them may hold, so that the others are served beside it."""

# As many can hold all of it together.
OWNERS_MIN = 4
# One owner may have more than its share as long as no more than this part of the whole is taken.
LENT_DIVISOR = 2


def share_of(whole: int) -> int:
    """The most for one owner, such as an organization or an address."""
    return max(1, whole // OWNERS_MIN)


def lent_of(whole: int) -> int:
    """Up to so much of it all together, no one is held to its share."""
    return whole // LENT_DIVISOR


def is_over_share(own: int, total: int, whole: int) -> bool:
    """Whether an owner may not have `own`, where with it `total` of the whole is taken."""
    return own > share_of(whole) and total > lent_of(whole)
