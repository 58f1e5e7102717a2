"""Any filter over any combination of dimensions, in groups: counts, and percentiles of a measure.

Roll-ups answer where they keep all that is asked for together: exactly, and for as long as they are
kept. Else request rows do, and the answer tells how many of them its percentiles are from.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from controlplane.kernel.measures import OWN_MEASURES
from controlplane.telemetry import exploration
from controlplane.telemetry.exploration import Exploration, Explored, ExploredGroup
from controlplane.telemetry.explore_rows import explore_rows
from controlplane.telemetry.selectors import EVERYONE, TIME, WHOLE, histograms_by, usage_sums

# What series have together, and the one dimension more that those of the installation may have.
USAGE_KEPT = frozenset(("organization", "project", "key", "model", "route", "pool", TIME))
OWN_KEPT = frozenset(("organization", "project", "model", TIME))
NARROW_KEPT = {"route": 1, "pool": 2}


def explore(ask: Exploration) -> Explored:
    """The answer, from roll-ups or rows; raises TooMuchToRead."""
    series = _series(ask)
    if series is not None and ask.needs <= USAGE_KEPT:
        return _from_rollups(ask, series)
    return explore_rows(ask)


def _series(ask: Exploration) -> dict[str, Any] | None:
    """Which histograms answer this: None where no such are kept, empty where none are wanted."""
    if not ask.measure:
        return {}
    narrow = ask.needs & NARROW_KEPT.keys()
    model: dict[str, Any] = {"model": ask.wanted.model} if ask.wanted.model else {}
    if not model and not narrow:
        model = {"model__gt": ""} if "model" in ask.by else {"model": ""}
    wanted = {"measure": ask.measure, **model}
    if ask.installation and len(narrow) <= 1 and ask.needs - narrow <= {"model", TIME}:
        one = {name: value for name, value in ask.narrowed.items() if name in narrow}
        number = max((NARROW_KEPT[name] for name in narrow), default=WHOLE)
        return wanted | one | {
            "organization": EVERYONE, "project": EVERYONE, "dimension": number,
        }  # fmt: skip
    if ask.measure in OWN_MEASURES and ask.needs <= OWN_KEPT:
        project: dict[str, Any] = {"project": ask.wanted.project or EVERYONE}
        if "project" in ask.by and not ask.wanted.project:
            project = {"project__gt": EVERYONE}
        owned = {"organization__in": ask.organizations, "dimension": WHOLE}
        return wanted | project | owned
    return None


def _from_rollups(ask: Exploration, series: Mapping[str, Any]) -> Explored:
    seen = ask.organizations
    groups: dict[tuple[Any, ...], ExploredGroup] = defaultdict(ExploredGroup)
    wanted = {**ask.narrowed, "organization__in": seen}
    for value, usage in usage_sums(seen, ask.span, wanted, *ask.by).items():
        groups[value].usage.add(usage)
    if series:
        for value, times in histograms_by(seen, ask.span, dict(series), *ask.by).items():
            groups[value].times.merge(times)
    ordered = sorted(groups, key=lambda value: (-groups[value].usage.requests, str(value)))
    beyond = ExploredGroup()
    for value in ordered[exploration.GROUPS_MAX :]:
        beyond.add(groups[value])
    return Explored(
        {value: groups[value] for value in ordered[: exploration.GROUPS_MAX]}, beyond, None
    )
