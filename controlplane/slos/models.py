"""Tables of objectives: what is promised, what was counted, who was told, who owns which stage.

Rows of an organization are seen in its scope; the installation's have the zero UUID, for staff.
"""

import uuid
from datetime import datetime

from django.db import models
from django.db.models import CheckConstraint, Index, Q, UniqueConstraint, Value

from controlplane.core.models import BaseModel
from controlplane.kernel.objectives.burn import PERIODS_DAYS, RULE_NAMES
from controlplane.kernel.objectives.counting import ALL_BUCKETS, INSTALLATION
from controlplane.kernel.rules import PRIORITIES

EVERYONE = uuid.UUID(INSTALLATION)
NAME_CHARS_MAX = 100
SCOPE_CHARS_MAX = 200
ADDRESS_CHARS_MAX = 500
LABEL_CHARS_MAX = 300
# The team of a stage that is no one's yet.
NOBODY = "Unassigned"
KINDS = ["webhook", "slack", "teams", "pagerduty", "opsgenie", "email"]


def default_rules() -> list[str]:
    return list(RULE_NAMES)


class Objective(BaseModel):
    """A promise about one indicator. `target_ppm` of the requests that count are to be good.

    One about several has them as `parts`, each an indicator with its threshold.

    A new threshold or scope begins a new `version`, whose counts are its own. `rules` name the
    burn-rate alerts; 0 minutes as `absent_after_min` raises none when data stay away. The last
    three act while a page-worthy alert fires: only objectives of the installation may have them.
    """

    organization = models.UUIDField()
    name = models.CharField(max_length=NAME_CHARS_MAX)
    indicator = models.CharField(max_length=40)
    threshold = models.BigIntegerField(default=0)
    route = models.CharField(max_length=SCOPE_CHARS_MAX, default="", blank=True)
    model = models.CharField(max_length=SCOPE_CHARS_MAX, default="", blank=True)
    project = models.UUIDField(null=True, blank=True)
    pool = models.CharField(max_length=SCOPE_CHARS_MAX, default="", db_default="", blank=True)
    region = models.CharField(max_length=SCOPE_CHARS_MAX, default="", db_default="", blank=True)
    prompt_bucket = models.SmallIntegerField(default=ALL_BUCKETS)
    parts = models.JSONField(default=list, db_default=Value([], models.JSONField()), blank=True)
    target_ppm = models.IntegerField()
    period_days = models.SmallIntegerField(default=30)
    rules = models.JSONField(default=default_rules)
    absent_after_min = models.SmallIntegerField(default=60)
    team = models.CharField(max_length=NAME_CHARS_MAX)
    email = models.EmailField(default="", blank=True)
    runbook = models.CharField(max_length=ADDRESS_CHARS_MAX)
    enabled = models.BooleanField(default=True)
    version = models.PositiveIntegerField(default=1)
    shed_priority = models.SmallIntegerField(null=True, blank=True)
    stop_canary = models.BooleanField(default=False)
    shift_version = models.PositiveIntegerField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "slo_objectives"
        constraints = [
            UniqueConstraint(
                fields=["organization", "name"],
                condition=Q(ended_at=None),
                name="objective_name_once",
            ),
            CheckConstraint(
                condition=Q(target_ppm__gt=0, target_ppm__lt=1_000_000),
                name="objective_target_bounds",
            ),
            CheckConstraint(
                condition=Q(period_days__in=PERIODS_DAYS), name="objective_period_known"
            ),
            CheckConstraint(
                condition=Q(shed_priority=None) | Q(shed_priority__in=PRIORITIES),
                name="objective_shed_known",
            ),
            CheckConstraint(
                condition=Q(organization=EVERYONE)
                | Q(shed_priority=None, stop_canary=False, shift_version=None),
                name="objective_acts_for_everyone",
            ),
        ]


class Change(BaseModel):
    """What was changed of an objective, in words: a mark on its burn-down."""

    organization = models.UUIDField()
    objective = models.ForeignKey(Objective, on_delete=models.CASCADE, related_name="changes")
    version = models.PositiveIntegerField()
    text = models.CharField(max_length=ADDRESS_CHARS_MAX)

    class Meta:
        db_table = "slo_changes"


class Alert(BaseModel):
    """One time that an objective was in danger, from `created_at` until it recovered.

    `rule` set it off at the burn rates of its two windows; `acts` tell what was done by itself.
    Nobody was told of one that is `muted`: its objective was silenced as it began. `assignee` is
    the e-mail of who takes care of it.
    """

    organization = models.UUIDField()
    objective = models.ForeignKey(Objective, on_delete=models.CASCADE, related_name="alerts")
    severity = models.CharField(max_length=6)
    rule = models.CharField(max_length=20)
    state = models.CharField(max_length=9, default="firing")
    burn_long = models.FloatField(null=True, blank=True)
    burn_short = models.FloatField(null=True, blank=True)
    acts = models.JSONField(default=list, blank=True)
    recovered_at = models.DateTimeField(null=True, blank=True)
    muted = models.BooleanField(default=False, db_default=False)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=LABEL_CHARS_MAX, default="", db_default="")
    assignee = models.EmailField(default="", db_default="", blank=True)

    class Meta:
        db_table = "slo_alerts"
        constraints = [
            UniqueConstraint(
                fields=["objective", "severity"],
                condition=Q(state="firing"),
                name="alert_fires_once",
            ),
            CheckConstraint(
                condition=Q(state__in=["firing", "recovered"]), name="alert_state_known"
            ),
        ]


class Silence(BaseModel):
    """Until when nobody is told of new alerts of an objective; ended early, `until` is then."""

    organization = models.UUIDField()
    objective = models.ForeignKey(Objective, on_delete=models.CASCADE, related_name="silences")
    until = models.DateTimeField()
    by = models.CharField(max_length=LABEL_CHARS_MAX)
    reason = models.CharField(max_length=ADDRESS_CHARS_MAX, default="", blank=True)

    class Meta:
        db_table = "slo_silences"
        indexes = [Index(fields=["objective", "-until"], name="silence_last_first")]


class Shed(BaseModel):
    """One time that an objective shed its priority; fields as those of `ShedTerms`."""

    organization = models.UUIDField()
    objective = models.ForeignKey(Objective, on_delete=models.CASCADE, related_name="sheds")
    since = models.DateTimeField()
    least = models.DurationField()
    well_since = models.DateTimeField(null=True, blank=True)
    until = models.DateTimeField()
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "slo_holds"
        constraints = [
            UniqueConstraint(
                fields=["objective"], condition=Q(released_at=None), name="objective_holds_once"
            )
        ]
        indexes = [Index(fields=["objective", "-since"], name="hold_newest_first")]

    @property
    def least_until(self) -> datetime:
        """Before this moment the priority is not let in again."""
        return self.since + self.least


class Channel(BaseModel):
    """Where alerts of an organization are told: `kind` is one of `KINDS`.

    The address is kept as `addresses.Kept` has it.
    """

    organization = models.UUIDField()
    kind = models.CharField(max_length=9)
    sealed = models.BinaryField()
    digest = models.BinaryField()
    shown = models.CharField(max_length=ADDRESS_CHARS_MAX)

    class Meta:
        db_table = "slo_channels"
        constraints = [
            UniqueConstraint(fields=["organization", "kind", "digest"], name="channel_once"),
            CheckConstraint(condition=Q(kind__in=KINDS), name="channel_kind_known"),
        ]


class Delivery(BaseModel):
    """One message about an alert to one channel, or to its owner's `address` where there is none.

    `event` is firing, recovered, assigned, or one that is about no alert: test, or budget, of which
    `about` has the message for programs, with a `title` and a `text` for people.
    It is tried until `sent_at`, or until `attempts` reach their bound; `error` is the last one's.
    """

    organization = models.UUIDField()
    alert = models.ForeignKey(
        Alert, on_delete=models.CASCADE, null=True, blank=True, related_name="deliveries"
    )
    channel = models.ForeignKey(
        Channel, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    event = models.CharField(max_length=9)
    about = models.JSONField(default=dict, blank=True, db_default={})
    kind = models.CharField(max_length=9)
    address = models.CharField(max_length=ADDRESS_CHARS_MAX, default="", blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    due_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=ADDRESS_CHARS_MAX, default="", blank=True)

    class Meta:
        db_table = "slo_deliveries"
        constraints = [
            UniqueConstraint(fields=["alert", "event", "channel"], name="delivery_once_by_channel"),
            UniqueConstraint(
                fields=["alert", "event", "address"],
                condition=Q(channel=None),
                name="delivery_once_to_owner",
            ),
        ]
        indexes = [Index(fields=["due_at"], condition=Q(sent_at=None), name="delivery_due_first")]


class StageOwner(BaseModel):
    """Who answers for one of the seven stages, in how many microseconds at p95, and by what.

    `learned_from` is of how many requests the budget was learned; 0 where somebody has set it.
    """

    stage = models.CharField(max_length=40, unique=True)
    team = models.CharField(max_length=NAME_CHARS_MAX)
    email = models.EmailField(default="", blank=True)
    budget_us = models.BigIntegerField()
    learned_from = models.IntegerField(default=0)
    runbook = models.CharField(max_length=ADDRESS_CHARS_MAX)

    class Meta:
        db_table = "slo_stage_owners"

    @property
    def judges(self) -> bool:
        """Whether the budget is one of this installation: the public one judges nobody."""
        return not self._state.adding


class Duty(models.TextChoices):
    """What of a stage can have an owner of its own."""

    TELEMETRY = "telemetry"
    LIMITS = "limits"
    ROUTING = "routing"
    INDEX = "index"


class DutyOwner(BaseModel):
    """Who has a duty of a stage from the day `begins` (UTC) until the next one begins.

    The blank team gives it back to the stage's owner.
    """

    stage = models.CharField(max_length=40)
    duty = models.CharField(max_length=9, choices=Duty.choices)
    team = models.CharField(max_length=NAME_CHARS_MAX, blank=True)
    email = models.EmailField(default="", blank=True)
    begins = models.DateField()

    class Meta:
        db_table = "slo_duty_owners"
        constraints = [
            UniqueConstraint(fields=["stage", "duty", "begins"], name="duty_once_a_day"),
            CheckConstraint(condition=Q(duty__in=Duty.values), name="duty_known"),
        ]


class Counted(models.Model):
    """Requests that counted for one version of an objective in `step_s` seconds from `at`.

    A minute is one gateway's, its `writer`; longer steps are all gateways' sums.
    """

    pk = models.CompositePrimaryKey("objective", "step_s", "at", "version", "writer")
    objective = models.UUIDField()
    step_s = models.IntegerField()
    at = models.DateTimeField()
    version = models.PositiveIntegerField()
    writer = models.UUIDField()
    organization = models.UUIDField()
    good = models.BigIntegerField()
    total = models.BigIntegerField()

    class Meta:
        """Made by `sql/counts.sql`."""

        managed = False
        db_table = "slo_counts"
