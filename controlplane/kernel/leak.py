"""How full a bucket is that leaks evenly: the arithmetic of limits, of gateways and of replays."""

import msgspec


class LeakLevel(msgspec.Struct, frozen=True):
    """How full a bucket was at a moment."""

    level: float
    at_s: float

    def leaked(self, rate: float, now_s: float) -> float:
        """How full it is now, where `rate` leaks in a second."""
        return max(0.0, self.level - (now_s - self.at_s) * rate)
