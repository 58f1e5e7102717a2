"""Objectives in the words of the pages: rows of the table, forms in their units, choices."""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.core.exceptions import ValidationError

from controlplane.kernel.ids import public_id, uuid_asked
from controlplane.kernel.measures import PROMPT_BUCKETS
from controlplane.kernel.objectives import counting
from controlplane.kernel.objectives.burn import DAY_MIN, MILLION, RULES, SEVERITIES
from controlplane.slos.checks import ObjectiveDraft
from controlplane.slos.models import Alert, Objective
from controlplane.slos.runbooks import runbook_slugs
from controlplane.slos.selectors import ObjectiveMonth
from controlplane.slos.standings import SHOWN_MIN, ObjectiveStatus
from frontend.shared import formats
from frontend.shared.access import Viewer
from frontend.shared.stages import LABELS

PPM_PER_PERCENT = 10_000
HUNDRED = 100.0
# Longer texts have too many parts, which the service refuses.
PART_LINES_MAX = 20
# One decimal of a per cent.
SHOWN_LEAST = 0.001
HOUR_S, DAY_S = 3_600, 86_400
INDICATOR_WORDS = {
    counting.AVAILABILITY: "Availability",
    counting.TTFT: "Time to first token",
    counting.INTER_TOKEN: "Time between tokens",
    counting.TOTAL: "Total time",
    counting.OVERHEAD: "Gateway overhead",
    counting.CACHE_HIT: "Cache hit rate",
    counting.BILLING: "Billing timeliness",
    counting.ALL_OF: "All of several",
    counting.ANY_OF: "Any of several",
    **{name: f"Stage {name[len(counting.STAGE)+1]}, {LABELS[name.removeprefix(counting.STAGE)]}"
       for name in counting.INDICATORS if name.startswith(counting.STAGE)},
}  # fmt: skip
STATE_WORDS = {
    "page": ("bad", "breaching"),
    "ticket": ("warn", "burning"),
    "absent": ("warn", "no recent data"),
    "paused": ("off", "paused"),
    "no data": ("off", "no data yet"),
    "spent": ("warn", "budget exhausted"),
    "ok": ("ok", "within budget"),
}
RULE_WORDS = {
    "page_quick": "Fast burn (page)",
    "page_slow": "Slow burn (page)",
    "ticket_quick": "Fast burn (ticket)",
    "ticket_slow": "Slow burn (ticket)",
    "absent": "No data",
}
SHED_WORDS = (("", "nobody"), ("0", "low priority"), ("1", "normal priority"))
_NUMBER = re.compile(r"[0-9]{1,10}(\.[0-9]{1,6})?", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True)
class ObjectiveRow:
    objective: Objective
    promise: str
    scope: str
    target: str
    attained: str
    attained_exact: str
    left: str
    left_width: float
    overspent: bool
    burns: list[tuple[str, str, bool]]
    exhausted: str
    kept_out: str
    tone: str
    state: str


def objective_row(standing: ObjectiveStatus) -> ObjectiveRow:
    objective, period, left = standing.objective, standing.period, standing.left
    tone, words = state_words(standing)
    return ObjectiveRow(
        objective=objective,
        promise=promise(objective),
        scope=scope(objective),
        target=f"{objective.target_ppm / PPM_PER_PERCENT:g} %",
        attained=share(standing.attained),
        attained_exact=f"{period.good:,} of {period.total:,} good",
        left=left_words(left),
        left_width=0.0 if left is None else round(HUNDRED * min(max(left, 0.0), 1.0), 2),
        overspent=left is not None and left < 0,
        burns=[_burn(standing, minutes) for minutes in SHOWN_MIN],
        exhausted=until_words(standing),
        kept_out=shed_words(standing),
        tone=tone,
        state=words,
    )


def state_words(standing: ObjectiveStatus) -> tuple[str, str]:
    """Tone and words of how it stands; an alert does not hide that the budget is spent."""
    tone, words = STATE_WORDS[standing.state]
    spent = standing.left is not None and standing.left <= 0
    return tone, f"{words}, budget exhausted" if spent and standing.state in SEVERITIES else words


def left_words(left: float | None) -> str:
    """The share of the budget that is left; what rounds to nothing is told from nothing."""
    if left is None:
        return formats.MISSING
    if 0 < left < SHOWN_LEAST:
        return f"< {HUNDRED * SHOWN_LEAST:g} %"
    return "0.0 %" if -SHOWN_LEAST < left <= 0 else f"{HUNDRED * left:,.1f} %".replace("-", "−")


def promise(objective: Objective) -> str:
    if objective.parts:
        joined = " and " if objective.indicator == counting.ALL_OF else " or "
        return joined.join(_promised(one["indicator"], one["threshold"]) for one in objective.parts)
    return _promised(objective.indicator, objective.threshold)


def _promised(indicator: str, threshold: int) -> str:
    words = INDICATOR_WORDS[indicator]
    if indicator == counting.AVAILABILITY:
        return words
    if indicator == counting.CACHE_HIT:
        return f"{words}, {threshold / PPM_PER_PERCENT:g} % of the prompt or more"
    return f"{words}, {formats.duration(threshold)} at most"


def scope(objective: Objective) -> str:
    parts = [
        f"model {objective.model}" if objective.model else "",
        f"route {objective.route}" if objective.route else "",
        f"project {public_id('proj', objective.project)[:13]}" if objective.project else "",
        f"pool {objective.pool}" if objective.pool else "",
        f"region {objective.region}" if objective.region else "",
        "" if objective.prompt_bucket == counting.ALL_BUCKETS
        else f"prompts of {bucket_words()[objective.prompt_bucket + 1][1]}",
    ]  # fmt: skip
    return ", ".join(part for part in parts if part) or "all requests"


def share(value: float | None) -> str:
    """A share near one, in enough digits to tell it from its target."""
    return formats.MISSING if value is None else f"{HUNDRED * value:.3f} %"


def window_words(minutes: int) -> str:
    """5 min, 1 h, 3 d."""
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < DAY_MIN else f"{minutes // DAY_MIN} d"


def until_words(standing: ObjectiveStatus) -> str:
    seconds, left = standing.exhausted_in_s, standing.left
    if seconds is None or left is None or left <= 0:
        return "not at this rate" if left is not None and left > 0 else formats.MISSING
    if seconds >= DAY_S:
        return f"{formats.significant(seconds / DAY_S)} d"
    return f"{formats.significant(seconds / HOUR_S)} h"


def shed_words(standing: ObjectiveStatus) -> str:
    """Which priority the objective keeps out, since when, and until when at least; else empty."""
    shed, priority = standing.shedding, standing.objective.shed_priority
    if shed is None or priority is None:
        return ""
    words = dict(SHED_WORDS)[str(priority)]
    since, least = formats.moment(shed.since), formats.moment(shed.least_until)
    return f"{words} since {since}, at least until {least}"


def month_row(month: ObjectiveMonth, target_ppm: int) -> tuple[str, str, str, str, str, str]:
    """Month, attained, good, counted, and tone and words of whether today's target was kept."""
    counted = month.counted
    kept = counted.good * MILLION >= target_ppm * counted.total
    return (
        f"{month.begins:%Y-%m}",
        share(counted.good / counted.total if counted.total else None),
        f"{counted.good:,}",
        f"{counted.total:,}",
        *(("ok", "kept") if kept else ("warn", "missed")),
    )


def lasted(alert: Alert) -> str:
    if alert.recovered_at is None:
        return "still firing"
    return formats.duration((alert.recovered_at - alert.created_at) / timedelta(microseconds=1))


def bucket_words() -> list[tuple[str, str]]:
    bounds = [f"{bound:,}" for bound in PROMPT_BUCKETS]
    lows = ["0", *(f"{bound + 1:,}" for bound in PROMPT_BUCKETS[:-1])]
    ranges = [f"{low} to {high} tokens" for low, high in zip(lows, bounds, strict=True)]
    last = f"over {bounds[-1]} tokens"
    return [(str(counting.ALL_BUCKETS), "any length")] + [
        (str(place), words) for place, words in enumerate([*ranges, last])
    ]


def form_choices(viewer: Viewer, *, installation: bool) -> dict[str, object]:
    return {
        "indicators": list(INDICATOR_WORDS.items()),
        "buckets": bucket_words(),
        "rule_choices": [(rule.name, _rule_words(rule.name)) for rule in RULES],
        "sheds": SHED_WORDS,
        "periods": [(30, "30 days"), (28, "28 days")],
        "absent_after_min": 60,
        "runbooks": runbook_slugs(),
        "project_choices": []
        if installation
        else [(one.id, one.name) for one in viewer.projects()],
    }


def draft_from(posted: Mapping[str, str], rules: list[str] | None) -> ObjectiveDraft:
    """What the form says, in the units of the services; raises ValidationError at its field."""
    indicator = posted.get("indicator", "")
    return ObjectiveDraft(
        name=posted.get("name", "").strip(),
        indicator=indicator,
        target_ppm=_scaled(posted, "target", PPM_PER_PERCENT),
        team=posted.get("team", "").strip(),
        threshold=_threshold(posted, indicator),
        period_days=_whole(posted, "period", 30),
        route=posted.get("route", "").strip(),
        model=posted.get("model", "").strip(),
        project=_project(posted.get("project", "")),
        pool=posted.get("pool", "").strip(),
        region=posted.get("region", "").strip(),
        parts=_parts(posted.get("parts", "")) if indicator in counting.COMPOSITES else (),
        prompt_bucket=_bucket(posted.get("prompt_bucket", "")),
        rules=None if rules is None else tuple(rules),
        absent_after_min=_whole(posted, "absent_after_min", 60),
        email=posted.get("email", "").strip(),
        runbook=posted.get("runbook", "").strip(),
        enabled=posted.get("paused") != "1",
        shed_priority=_optional(posted, "shed_priority"),
        stop_canary=posted.get("stop_canary") == "1",
        shift_version=_optional(posted, "shift_version"),
    )


def threshold_text(objective: Objective) -> str:
    """The threshold as the form takes it: milliseconds, or per cent of a prompt."""
    return _shown(objective.indicator, objective.threshold)


def parts_text(objective: Objective) -> str:
    """The parts as the form takes them, one in each line: an indicator and its threshold."""
    lines = (f"{one['indicator']} {_shown(**one)}".strip() for one in objective.parts)
    return "\n".join(lines)


def _shown(indicator: str, threshold: int) -> str:
    return f"{threshold / _scale(indicator):g}" if threshold else ""


def _scale(indicator: str) -> int:
    return PPM_PER_PERCENT if indicator == counting.CACHE_HIT else formats.US_PER_MS


def _parts(text: str) -> tuple[counting.IndicatorPart, ...]:
    found = []
    for line in filter(None, map(str.strip, text.splitlines()[:PART_LINES_MAX])):
        indicator, _, bound = line.partition(" ")
        if indicator not in counting.INDICATORS:
            told = f"{indicator!r} is not one of {', '.join(counting.INDICATORS)}."
            raise ValidationError({"parts": told})
        posted = {"parts": bound or "0"}
        found.append(counting.IndicatorPart(indicator, _scaled(posted, "parts", _scale(indicator))))
    return tuple(found)


def _burn(standing: ObjectiveStatus, minutes: int) -> tuple[str, str, bool]:
    """Window, burn rate and whether it spends more than the period allows."""
    rate = standing.burn(minutes)
    text = formats.MISSING if rate is None else formats.significant(rate)
    return window_words(minutes), text, rate is not None and rate > 1


def _rule_words(name: str) -> str:
    rule = next(one for one in RULES if one.name == name)
    return (
        f"{RULE_WORDS[name]}: {rule.factor(30):.3g} × over {window_words(rule.long_min)}"
        f" and {window_words(rule.short_min)}"
    )


def _threshold(posted: Mapping[str, str], indicator: str) -> int:
    if indicator in (counting.AVAILABILITY, *counting.COMPOSITES):
        return 0
    return _scaled(posted, "threshold", _scale(indicator))


def _scaled(posted: Mapping[str, str], field: str, scale: int) -> int:
    text = posted.get(field, "").strip().removesuffix("%").strip()
    if not _NUMBER.fullmatch(text):
        raise ValidationError({field: "A number such as 99.5 or 300."})
    return round(float(text) * scale)


def _whole(posted: Mapping[str, str], field: str, usual: int) -> int:
    text = posted.get(field, "").strip()
    if not text:
        return usual
    if not _WHOLE.fullmatch(text):
        raise ValidationError({field: "Must be a whole number."})
    return int(text)


def _optional(posted: Mapping[str, str], field: str) -> int | None:
    return _whole(posted, field, 0) if posted.get(field, "").strip() else None


def _project(text: str) -> uuid.UUID | None:
    wrong = ValidationError({"project": "Project not found."})
    return uuid_asked(text, "proj", wrong) if text else None


def _bucket(text: str) -> int:
    known = {value: int(value) for value, _ in bucket_words()}
    return known.get(text or str(counting.ALL_BUCKETS), MILLION)
