"""Pools: one for each name in use, and the one that commands take by default."""

from typing import Any

import django.core.validators
import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models

DEFAULT = "default"


def make_pools_in_use(apps: Any, schema_editor: Any) -> None:
    """A pool embeds where all its models do."""
    using = schema_editor.connection.alias
    served = apps.get_model("catalog", "Model").objects.using(using)
    pools = apps.get_model("catalog", "Pool").objects.using(using)
    tasks: dict[str, set[str]] = {DEFAULT: set()}
    for name, task in served.values_list("pool", "task"):
        tasks.setdefault(name, set()).add(task)
    for name, found in tasks.items():
        pools.create(name=name, task="embed" if found == {"embed"} else "generate")


class Migration(migrations.Migration):
    dependencies = [("catalog", "0003_embedding_output")]

    operations = [
        migrations.CreateModel(
            name="Pool",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=controlplane.core.models.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=50,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[a-z0-9][a-z0-9-]{0,49}\\Z",
                                "Use a-z, 0-9 and - only, at most 50.",
                            )
                        ],
                    ),
                ),
                (
                    "task",
                    models.CharField(
                        choices=[("generate", "Generate"), ("embed", "Embed")],
                        default="generate",
                        max_length=8,
                    ),
                ),
                (
                    "size_class",
                    models.CharField(
                        choices=[("small", "Small"), ("medium", "Medium"), ("large", "Large")],
                        default="small",
                        max_length=6,
                    ),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[("both", "Both"), ("prefill", "Prefill"), ("decode", "Decode")],
                        default="both",
                        max_length=7,
                    ),
                ),
                ("nodes_min", models.PositiveIntegerField(default=0)),
                ("nodes_max", models.PositiveIntegerField(default=1)),
                ("warm_schedule", models.JSONField(blank=True, default=list)),
                ("start_command", models.CharField(blank=True, default="", max_length=1000)),
            ],
            options={
                "db_table": "pools",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("task__in", ["generate", "embed"])),
                        name="pool_task_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("size_class__in", ["small", "medium", "large"])),
                        name="pool_size_class_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("role__in", ["both", "prefill", "decode"])),
                        name="pool_role_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("nodes_max__gte", models.F("nodes_min")), ("nodes_max__lte", 1000)
                        ),
                        name="pool_nodes_bounds",
                    ),
                ],
            },
        ),
        migrations.RunPython(make_pools_in_use),
        # The name is what is said everywhere, so the name is what must exist.
        migrations.RunSQL(
            "ALTER TABLE models ADD CONSTRAINT model_pool_known"
            " FOREIGN KEY (pool) REFERENCES pools (name) DEFERRABLE INITIALLY DEFERRED"
        ),
        migrations.RunSQL(
            "GRANT SELECT, INSERT, UPDATE ON pools TO sluice_app;"
            "GRANT SELECT ON pools TO sluice_ledger"
        ),
    ]
