"""What an objective may say: every complaint at its field. No database is asked."""

import uuid
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from django.core.exceptions import ValidationError

from controlplane.core.mail import NOT_EMAIL, is_email
from controlplane.kernel.ids import kind
from controlplane.kernel.objectives import burn
from controlplane.kernel.objectives.counting import (
    ALL_BUCKETS,
    AVAILABILITY,
    CACHE_HIT,
    COMPOSITES,
    INDICATORS,
    IndicatorPart,
)
from controlplane.kernel.rules import PRIORITIES, PRIORITY_HIGH
from controlplane.slos.models import (
    ADDRESS_CHARS_MAX,
    EVERYONE,
    NAME_CHARS_MAX,
    SCOPE_CHARS_MAX,
    Objective,
)
from controlplane.slos.runbooks import runbook_of, runbook_slugs

THRESHOLD_US_MAX = 3_600_000_000
ABSENT_MIN_MAX = 360
VERSION_MAX = 2**31 - 1
PROMPT_BUCKETS = 6
PARTS_MIN, PARTS_MAX = 2, 6
PERCENT_PPM = burn.MILLION / 100


class ObjectiveDraft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A promise. `threshold` is in microseconds, of `cache_hit` in millionths, as is the target.

    Without `rules` it has every burn-rate rule that can fire at its target, without `runbook` its
    indicator's. Composite ones (`all_of`, `any_of`) have `parts` instead of a threshold. The last
    three act while a page-worthy alert fires; only the installation's objectives may have them.
    """

    name: str
    indicator: str
    target_ppm: int
    team: str
    threshold: int = 0
    period_days: int = 30
    route: str = ""
    model: str = ""
    project: Annotated[uuid.UUID, kind("proj")] | None = None
    pool: str = ""
    region: str = ""
    prompt_bucket: int = ALL_BUCKETS
    parts: tuple[IndicatorPart, ...] = ()
    rules: tuple[str, ...] | None = None
    absent_after_min: int = 60
    email: str = ""
    runbook: str = ""
    enabled: bool = True
    shed_priority: int | None = None
    stop_canary: bool = False
    shift_version: int | None = None

    @property
    def acts(self) -> bool:
        """Whether its alerts change anything by themselves."""
        return self.stop_canary or self.shed_priority is not None or self.shift_version is not None


class StageBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who answers for a stage, within how many microseconds at p95, and by which runbook."""

    team: str
    budget_us: int
    runbook: str
    email: str = ""


class Complaints:
    """Collects what is wrong, by field, and raises it together."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    def unless(self, right: bool, field: str, message: str) -> None:
        if not right:
            self._found.setdefault(field, []).append(message)

    def raise_any(self) -> None:
        """Raise ValidationError if anything is wrong."""
        if self._found:
            raise ValidationError(self._found)


def draft_check(organization: uuid.UUID, draft: ObjectiveDraft) -> None:
    """Return if it can be kept; raises ValidationError with every complaint."""
    wrong = Complaints()
    wrong.unless(_line(draft.name, NAME_CHARS_MAX), "name", _line_told(NAME_CHARS_MAX))
    known = (*INDICATORS, *COMPOSITES)
    wrong.unless(draft.indicator in known, "indicator", f"One of {', '.join(known)}.")
    told = "Above 0 and below 1,000,000 (100 %)."
    wrong.unless(0 < draft.target_ppm < burn.MILLION, "target_ppm", told)
    wrong.unless(draft.period_days in burn.PERIODS_DAYS, "period_days", "28 or 30 days.")
    _check_threshold(draft, wrong)
    _check_scope(organization, draft, wrong)
    owner_check(draft.team, draft.email, draft.runbook or runbook_of(draft.indicator), wrong)
    told = f"0 (never) to {ABSENT_MIN_MAX} minutes."
    wrong.unless(0 <= draft.absent_after_min <= ABSENT_MIN_MAX, "absent_after_min", told)
    _check_acts(organization, draft, wrong)
    wrong.raise_any()
    _check_rules(draft, wrong)
    wrong.raise_any()


def rules_of(draft: ObjectiveDraft) -> list[str]:
    if draft.rules is not None:
        return [name for name in burn.RULE_NAMES if name in draft.rules]
    return [
        rule.name
        for rule in burn.RULES
        if not burn.unreachable(rule, draft.target_ppm, draft.period_days)
    ]


def chosen_rules(objective: Objective) -> list[burn.Rule]:
    return [rule for rule in burn.RULES if rule.name in objective.rules]


def owner_check(team: str, email: str, runbook: str, wrong: Complaints) -> None:
    """Note what is wrong with an owner and the link to a runbook."""
    wrong.unless(_line(team, NAME_CHARS_MAX), "team", f"Who owns it. {_line_told(NAME_CHARS_MAX)}")
    if email:
        wrong.unless(is_email(email), "email", NOT_EMAIL)
    shipped = runbook in runbook_slugs()
    told = "Must be the name of a shipped runbook, or a URL that begins with https:// or http://."
    wrong.unless(shipped or is_link(runbook), "runbook", told)


def is_link(text: str) -> bool:
    if len(text) > ADDRESS_CHARS_MAX or not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _check_threshold(draft: ObjectiveDraft, wrong: Complaints) -> None:
    if draft.indicator not in COMPOSITES:
        told = f"Only {' and '.join(COMPOSITES)} have parts."
        wrong.unless(not draft.parts, "parts", told)
        _check_bound(draft.indicator, draft.threshold, "threshold", wrong)
        return
    told = "Must be 0: each part has its own threshold."
    wrong.unless(draft.threshold == 0, "threshold", told)
    names = {part.indicator for part in draft.parts}
    told = f"{PARTS_MIN} to {PARTS_MAX} parts, each of another indicator."
    several = PARTS_MIN <= len(draft.parts) <= PARTS_MAX and len(names) == len(draft.parts)
    wrong.unless(several, "parts", told)
    for place, part in enumerate(draft.parts):
        field = f"parts[{place}]"
        known = part.indicator in INDICATORS
        wrong.unless(known, f"{field}.indicator", f"One of {', '.join(INDICATORS)}.")
        _check_bound(part.indicator, part.threshold, f"{field}.threshold", wrong)


def _check_bound(indicator: str, threshold: int, field: str, wrong: Complaints) -> None:
    if indicator == AVAILABILITY:
        wrong.unless(threshold == 0, field, "Must be 0: availability has no threshold.")
    elif indicator == CACHE_HIT:
        told = "Must be the share of a prompt that should be cached, 1 to 1,000,000 millionths."
        wrong.unless(1 <= threshold <= burn.MILLION, field, told)
    else:
        told = f"1 to {THRESHOLD_US_MAX:,} microseconds."
        wrong.unless(1 <= threshold <= THRESHOLD_US_MAX, field, told)


def _check_scope(organization: uuid.UUID, draft: ObjectiveDraft, wrong: Complaints) -> None:
    for field in ("route", "model", "pool", "region"):
        text = getattr(draft, field)
        wrong.unless(not text or _line(text, SCOPE_CHARS_MAX), field, _line_told(SCOPE_CHARS_MAX))
    told = f"-1 (all) to {PROMPT_BUCKETS - 1}."
    wrong.unless(ALL_BUCKETS <= draft.prompt_bucket < PROMPT_BUCKETS, "prompt_bucket", told)
    told = "An objective of the installation covers all projects."
    wrong.unless(draft.project is None or organization != EVERYONE, "project", told)


def _check_acts(organization: uuid.UUID, draft: ObjectiveDraft, wrong: Complaints) -> None:
    told = "Only an objective of the installation can act on requests of all tenants."
    wrong.unless(organization == EVERYONE or not draft.acts, "actions", told)
    sheds = {None, *PRIORITIES} - {PRIORITY_HIGH}
    told = "Must be 0 (low) or 1 (normal): high priority is never shed."
    wrong.unless(draft.shed_priority in sheds, "shed_priority", told)
    known = draft.shift_version is None or 1 <= draft.shift_version <= VERSION_MAX
    told = f"Must be a version of the rules, 1 to {VERSION_MAX:,}."
    wrong.unless(known, "shift_version", told)


def _check_rules(draft: ObjectiveDraft, wrong: Complaints) -> None:
    """Refuse a rule that could never fire, and say from which target on it can."""
    unknown = sorted(set(draft.rules or ()) - set(burn.RULE_NAMES))
    wrong.unless(not unknown, "rules", f"One of {', '.join(burn.RULE_NAMES)}.")
    ceiling = burn.MILLION / (burn.MILLION - draft.target_ppm)
    for rule in burn.RULES:
        if draft.rules is None or rule.name not in draft.rules:
            continue
        least = burn.least_target_ppm(rule, draft.period_days)
        wrong.unless(
            not burn.unreachable(rule, draft.target_ppm, draft.period_days),
            "rules",
            f"{rule.name} can never fire: at {draft.target_ppm / PERCENT_PPM:g} % nothing burns"
            f" faster than {ceiling:.4g}, and it needs more than"
            f" {rule.factor(draft.period_days):.4g}. Omit it, or set a target of at least"
            f" {least / PERCENT_PPM:g} %.",
        )


def _line(text: str, chars_max: int) -> bool:
    return bool(text.strip()) and len(text) <= chars_max and text.isprintable()


def _line_told(chars_max: int) -> str:
    return f"One line of 1 to {chars_max} printable characters."
