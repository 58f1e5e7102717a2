"""Tables of telemetry as Django sees them: read by selectors, written only by SQL functions.

Partitions, policies and triggers are in `sql/`, so the models are unmanaged.
"""

from typing import ClassVar

from django.db import models


class RequestRecord(models.Model):
    """One finished request: what it was, what it cost, how long each layer took."""

    request = models.UUIDField(primary_key=True)
    organization = models.UUIDField()
    project = models.UUIDField()
    key = models.UUIDField()
    started_at = models.DateTimeField()
    cost_nano = models.BigIntegerField()
    total_us = models.BigIntegerField()
    ttft_us = models.BigIntegerField()
    prompt_tokens = models.IntegerField()
    cached_tokens = models.IntegerField()
    output_tokens = models.IntegerField()
    status = models.SmallIntegerField()
    stream = models.BooleanField()
    model = models.TextField()
    route = models.TextField()
    node = models.TextField()
    pool = models.TextField()
    region = models.TextField()
    operation = models.TextField()
    error_code = models.TextField()
    finish = models.TextField()
    safety = models.TextField()
    spans = models.BinaryField()
    receipt = models.BinaryField()
    end_user = models.TextField(default="")
    rating = models.SmallIntegerField(default=0)
    comment = models.TextField(default="")

    class Meta:
        """Daily partitions by id; kept 30 days."""

        managed = False
        db_table = "request_records"
        ordering: ClassVar[list[str]] = ["-request"]


class Series(models.Model):
    """What a histogram is of.

    The zero UUID stands for all organizations or projects, the blank model for all models. Of
    route, pool, region, prompt bucket and status class at most one is set; blank (or -1) is any.
    `dimension` is which one, counted from 1 in this order; PostgreSQL works it out.
    """

    organization = models.UUIDField()
    project = models.UUIDField()
    measure = models.TextField()
    model = models.TextField()
    route = models.TextField()
    pool = models.TextField()
    region = models.TextField()
    prompt_bucket = models.SmallIntegerField()
    status_class = models.SmallIntegerField()
    dimension = models.SmallIntegerField()
    data = models.BinaryField()

    class Meta:
        """Columns shared by minutes and roll-ups."""

        abstract = True


class HistogramMinute(Series):
    """One writer's histogram of one minute; merge all writers' to read it."""

    pk = models.CompositePrimaryKey(
        *("organization", "project", "measure", "dimension", "minute", "model", "route", "pool"),
        *("region", "prompt_bucket", "status_class", "writer"),
    )
    minute = models.DateTimeField()
    writer = models.UUIDField()

    class Meta:
        """Daily partitions; kept three days."""

        managed = False
        db_table = "histogram_minutes"


class HistogramRollup(Series):
    """All writers merged, over `step_s` seconds from `at`."""

    pk = models.CompositePrimaryKey(
        *("organization", "project", "measure", "dimension", "step_s", "at", "model", "route"),
        *("pool", "region", "prompt_bucket", "status_class"),
    )
    step_s = models.IntegerField()
    at = models.DateTimeField()

    class Meta:
        """One table for all steps."""

        managed = False
        db_table = "histogram_rollups"


class Exemplar(models.Model):
    """A request that took `value_us`, one for each octave of values in five minutes."""

    pk = models.CompositePrimaryKey("organization", "measure", "at", "octave", "project", "model")
    organization = models.UUIDField()
    project = models.UUIDField()
    measure = models.TextField()
    model = models.TextField()
    octave = models.SmallIntegerField()
    at = models.DateTimeField()
    value_us = models.BigIntegerField()
    request = models.UUIDField()

    class Meta:
        """Kept 14 days."""

        managed = False
        db_table = "exemplars"


class Usage(models.Model):
    """Counters of one organization, project, key, model, route and pool that served.

    `gone` are requests whose client left before the end; they are no `errors`. Of the prompt
    tokens, `available` were cached at the best node, `captured` at the chosen one.
    """

    organization = models.UUIDField()
    project = models.UUIDField()
    key = models.UUIDField()
    model = models.TextField()
    route = models.TextField()
    pool = models.TextField()
    requests = models.BigIntegerField()
    errors = models.BigIntegerField()
    gone = models.BigIntegerField()
    uncached = models.BigIntegerField()
    cached = models.BigIntegerField()
    output = models.BigIntegerField()
    nano = models.BigIntegerField()
    available = models.BigIntegerField()
    captured = models.BigIntegerField()

    class Meta:
        """Columns shared by minutes and roll-ups."""

        abstract = True


class UsageMinute(Usage):
    """One writer's counts of one minute; sum all writers' to read it."""

    pk = models.CompositePrimaryKey(
        "minute", "organization", "project", "key", "model", "route", "pool", "writer"
    )
    minute = models.DateTimeField()
    writer = models.UUIDField()

    class Meta:
        """Daily partitions; kept three days."""

        managed = False
        db_table = "usage_minutes"


class UsageRollup(Usage):
    """All writers summed, over `step_s` seconds from `at`."""

    pk = models.CompositePrimaryKey(
        "step_s", "at", "organization", "project", "key", "model", "route", "pool"
    )
    step_s = models.IntegerField()
    at = models.DateTimeField()

    class Meta:
        """One table for all steps."""

        managed = False
        db_table = "usage_rollups"


class RollupRetry(models.Model):
    """A window whose roll-up failed, or lacks one that was mended since, until it is whole.

    With `lost` it never will be: its source is gone, or rows of it cannot be read.
    """

    pk = models.CompositePrimaryKey("step_s", "at")
    step_s = models.IntegerField()
    at = models.DateTimeField()
    due_at = models.DateTimeField()
    tries = models.IntegerField()
    problem = models.TextField()
    lost = models.BooleanField(default=False)

    class Meta:
        """Of the whole installation: it holds nothing of tenants."""

        db_table = "rollup_retries"
