"""How many threads the next step runs on: all of them, unless the machine is not ours alone.

A thread that the system puts aside makes the others wait. Where that takes much of the time, steps
run on the caller's thread alone for a while, then all threads are tried again.
"""

# Share of the time of recent steps that may be lost. On an idle machine it is under a tenth.
LOST_SHARE_MAX = 0.25
# What counts as recent: a step's weight falls by this factor with each step that follows.
MEMORY = 0.9
# Narrow steps before the next try; doubled each time that the try fails.
NARROW_STEPS_MIN = 16
NARROW_STEPS_MAX = 1024
# Wide steps without trouble after which the past is forgotten.
CALM_STEPS = 256


class Width:
    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pause = NARROW_STEPS_MIN
        self._narrow_left = 0
        self._wide_steps = 0
        self._lost = 0.0
        self._spent = 0.0

    def threads(self) -> int:
        return 1 if self._narrow_left else self._threads

    def note(self, lost_ns: int, step_ns: int) -> None:
        """Of the step that has ended: how long its caller waited or was put aside, and all."""
        if self._narrow_left:
            self._narrow_left -= 1
            return
        self._lost = self._lost * MEMORY + lost_ns
        self._spent = self._spent * MEMORY + step_ns
        self._wide_steps += 1
        if self._lost > LOST_SHARE_MAX * self._spent:
            self._narrow_left = self._pause
            self._pause = min(2 * self._pause, NARROW_STEPS_MAX)
            self._wide_steps = 0
            self._lost = self._spent = 0.0
        elif self._wide_steps >= CALM_STEPS:
            self._pause = NARROW_STEPS_MIN
