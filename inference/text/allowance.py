"""What one rendering of a foreign template may use: steps, time, and sizes of what it makes.

Everything that a template does takes from the allowance of its rendering; none is refilled.
"""

import time
from contextvars import ContextVar
from typing import Any

from jinja2 import TemplateRuntimeError, Undefined

STEPS_MAX = 1_000_000
RENDER_S_MAX = 1.0
# Characters of text and items of lists (as `ITEM_UNITS` each) that are made, kept or not.
UNITS_MAX = 64 * 1024 * 1024
ITEM_UNITS = 8
INTEGER_BITS_MAX = 4096

_SCALARS = (bool, int, float, type(None), Undefined)


class OverAllowance(TemplateRuntimeError):
    """The template used up what one rendering may use."""


class Allowance:
    __slots__ = ("_end_s", "_steps", "_units")

    def __init__(self) -> None:
        self._steps = STEPS_MAX
        self._units = UNITS_MAX
        self._end_s = time.monotonic() + RENDER_S_MAX

    def step(self) -> None:
        """Count one loop item, call, operator, filter or comparison, and look at the clock."""
        self._steps -= 1
        if self._steps < 0:
            raise OverAllowance(f"the template takes over {STEPS_MAX} steps")
        if time.monotonic() > self._end_s:
            raise OverAllowance(f"the template takes over {RENDER_S_MAX:g} s")

    def take(self, units: int) -> None:
        self._units -= units
        if self._units < 0:
            raise OverAllowance(f"the template makes over {UNITS_MAX} characters or items")

    def take_value(self, value: object, *, as_text: bool = False) -> int:
        """Pay for a value with all that is inside it, as often as it is; returns the units.

        `as_text` refuses what no template means to write: its own objects, generators.
        """
        units = 0
        pending: list[Any] = [value]
        while pending:
            each = pending.pop()
            cost = ITEM_UNITS
            if isinstance(each, str):
                cost += len(each)
            elif isinstance(each, (list, tuple, dict)):
                self.step()
                cost += ITEM_UNITS * len(each)
                pending.extend(each)
                if isinstance(each, dict):
                    pending.extend(each.values())
            elif as_text and not isinstance(each, _SCALARS):
                raise TemplateRuntimeError(f"a {type(each).__name__} cannot be written as text")
            units += cost
            self.take(cost)
        return units

    def text(self, value: object) -> str:
        if isinstance(value, str):
            self.take(len(value))
            return value
        self.take_value(value, as_text=True)
        return str(value)


_CURRENT: ContextVar[Allowance] = ContextVar("allowance")


def allowance() -> Allowance:
    """The allowance of the rendering in progress; LookupError while a template is compiled."""
    return _CURRENT.get()


class Rendering:
    """A context in which a new allowance holds."""

    def __enter__(self) -> None:
        self._token = _CURRENT.set(Allowance())

    def __exit__(self, *error: object) -> None:
        _CURRENT.reset(self._token)
