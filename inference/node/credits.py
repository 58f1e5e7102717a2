"""How many jobs each gateway may have here at once: an even share, and what others do not use.

A credit is granted only when it is certainly free: what was taken back counts until the gateway has
confirmed it, and until its jobs beyond it have ended. So all gateways together never
have more than the total. It knows neither links nor frames; time comes in as an argument.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

# How long a gateway's peak is remembered: one to two of these.
PEAK_S = 1.0
# With fewer credits than gateways, each has a turn of this length.
TURN_S = 0.25
# The number of the grant in a hello; a welcome confirms it.
GREETING = 0
# An idle gateway keeps a quarter of its even share in reserve.
HEADROOM_PARTS = 4


class Grant(msgspec.Struct, eq=False):
    """What one gateway was granted. While `number` is unconfirmed, either figure may apply."""

    granted: int
    confirmed: int
    number: int = GREETING
    # Until the welcome nothing can be sent: a grant sent then would be lost.
    waiting: bool = True
    peak_now: int = 0
    peak_before: int = 0

    @property
    def most(self) -> int:
        """The most that the gateway may believe to have."""
        return max(self.granted, self.confirmed)

    @property
    def peak(self) -> int:
        """The most jobs that it had here recently."""
        return max(self.peak_now, self.peak_before)


class CreditShares:
    """The grants of all gateways; `held` counts the jobs that each has here now.

    Jobs whose gateway is gone are in `held` under a name of their own until the engine ended them.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._grants: dict[str, Grant] = {}
        self._rotated_s = 0.0
        self._turn_s = 0.0
        self._turn = 0

    def greet(self, owner: str, expected: int, held: Mapping[str, int]) -> int:
        """Credits for a hello: an even share among so many gateways, as far as it is free."""
        self._grants.pop(owner, None)
        credits = min(self._total // max(1, expected), self._free(held))
        self._grants[owner] = Grant(granted=credits, confirmed=credits)
        return credits

    def leave(self, owner: str) -> None:
        """Its link is gone; what it had here counts in `held` until it has ended."""
        self._grants.pop(owner, None)

    def taken(self, owner: str, number: int) -> None:
        """The gateway has confirmed the grant of that number, `GREETING` for the hello."""
        grant = self._grants.get(owner)
        if grant is not None and grant.waiting and grant.number == number:
            grant.waiting = False
            grant.confirmed = grant.granted

    def share(
        self, held: Mapping[str, int], now_s: float, send: Callable[[str, int, int], None]
    ) -> None:
        """Move credits to where they are used; `send(owner, number, credits)` sends each change."""
        self._remember(held, now_s)
        grants = self._grants
        targets = dict(zip(grants, self._targets(), strict=True))
        for owner, grant in grants.items():
            if not grant.waiting and targets[owner] < grant.granted:
                self._grant(owner, grant, targets[owner], send)
        free = self._free(held)
        for owner, grant in grants.items():
            more = min(targets[owner] - grant.granted, free)
            if more > 0 and not grant.waiting:
                self._grant(owner, grant, grant.granted + more, send)
                free -= more

    def _grant(
        self, owner: str, grant: Grant, credits: int, send: Callable[[str, int, int], None]
    ) -> None:
        grant.number += 1
        grant.granted, grant.waiting = credits, True
        send(owner, grant.number, credits)

    def _free(self, held: Mapping[str, int]) -> int:
        """Credits that no gateway has or may believe to have."""
        granted = {owner: grant.most for owner, grant in self._grants.items()}
        owners = granted.keys() | held.keys()
        return self._total - sum(max(held.get(each, 0), granted.get(each, 0)) for each in owners)

    def _remember(self, held: Mapping[str, int], now_s: float) -> None:
        rotate = now_s - self._rotated_s >= PEAK_S
        if rotate:
            self._rotated_s = now_s
        for owner, grant in self._grants.items():
            jobs = held.get(owner, 0)
            if rotate:
                grant.peak_before, grant.peak_now = grant.peak_now, jobs
            grant.peak_now = max(grant.peak_now, jobs)
        if now_s - self._turn_s >= TURN_S:
            self._turn_s = now_s
            self._turn += 1

    def _targets(self) -> list[int]:
        grants = list(self._grants.values())
        headroom = max(1, self._total // (HEADROOM_PARTS * max(1, len(grants))))
        wants = []
        for grant in grants:
            # One that has used all it had may want any number more.
            hungry = grant.peak >= grant.granted
            wants.append(2 * grant.peak + headroom if hungry else grant.peak + headroom)
        return divide(self._total, wants, first=self._turn)


def divide(total: int, wants: Sequence[int], *, first: int = 0) -> list[int]:
    """Parts of a total: no one gets more than it wants while another has less; the rest is even.

    Where there is not one for each, they go round, beginning with `first`.
    """
    count = len(wants)
    if total < count:
        return [int((place - first) % count < total) for place in range(count)]
    parts = [0] * count
    left = total
    for done, place in enumerate(sorted(range(count), key=lambda place: wants[place])):
        parts[place] = min(wants[place], left // (count - done))
        left -= parts[place]
    for place in range(count):
        parts[place] += left // count + (place < left % count)
    return parts
