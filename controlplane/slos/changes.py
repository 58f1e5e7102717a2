"""Changes of objectives in words, as they stand beside a burn-down."""

from controlplane.kernel.objectives.burn import MILLION
from controlplane.kernel.objectives.counting import CACHE_HIT
from controlplane.slos.models import Objective

PERCENT_PPM = MILLION / 100
US_PER_MS = 1_000
_NAMES = {
    "target_ppm": "target",
    "period_days": "days",
    "absent_after_min": "minutes without data",
    "prompt_bucket": "prompt length",
    "shed_priority": "shed priority",
    "shift_version": "rules to shift to",
}


def change_words(objective: Objective, name: str, before: object, after: object) -> str:
    """`target 99 % to 99.5 %`: the field, and both values in the units of the pages."""
    values = (_said(objective, name, value) for value in (before, after))
    return f"{_NAMES.get(name, name)} {' to '.join(values)}"


def _said(objective: Objective, name: str, value: object) -> str:
    if isinstance(value, list):
        return "+".join(value) or "none"
    if isinstance(value, int) and name == "target_ppm":
        return f"{value / PERCENT_PPM:g} %"
    if isinstance(value, int) and name == "threshold":
        cached = objective.indicator == CACHE_HIT
        return f"{value / PERCENT_PPM:g} %" if cached else f"{value / US_PER_MS:g} ms"
    return "none" if value in (None, "") else str(value)
