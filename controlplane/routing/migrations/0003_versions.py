"""Rules move into their version as JSON, and versions get a life: draft, canary, published."""

from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from controlplane.core.sqlfiles import run_sql_file

STATES = [
    ("draft", "Draft"),
    ("canary", "Canary"),
    ("published", "Published"),
    ("retired", "Retired"),
]


def _other_version() -> models.ForeignKey[Any, Any]:
    return models.ForeignKey(
        blank=True,
        null=True,
        on_delete=django.db.models.deletion.PROTECT,
        related_name="+",
        to="routing.ruleset",
    )


def _moment() -> models.DateTimeField[Any, Any]:
    return models.DateTimeField(blank=True, null=True)


class Migration(migrations.Migration):
    dependencies = [("routing", "0002_guards")]
    operations = [
        run_sql_file(__file__, "versions_before.sql"),
        migrations.AddField(
            "ruleset",
            "state",
            models.CharField(choices=STATES, default="draft", max_length=9),
        ),
        migrations.AddField("ruleset", "rules", models.JSONField(blank=True, default=list)),
        migrations.AddField("ruleset", "revision", models.PositiveIntegerField(default=1)),
        migrations.AddField(
            "ruleset", "share_permille", models.PositiveSmallIntegerField(default=0)
        ),
        migrations.AddField("ruleset", "stops_itself", models.BooleanField(default=False)),
        migrations.AddField("ruleset", "based_on", _other_version()),
        migrations.AddField("ruleset", "copy_of", _other_version()),
        migrations.AddField("ruleset", "canary_at", _moment()),
        migrations.AddField("ruleset", "published_at", _moment()),
        migrations.AddField("ruleset", "retired_at", _moment()),
        run_sql_file(__file__, "versions_move.sql"),
    ]
