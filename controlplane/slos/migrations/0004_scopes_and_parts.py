"""Objectives of a pool or a region, and those of several indicators."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("slos", "0003_learned_budgets")]

    operations = [
        migrations.AddField(
            model_name="objective",
            name="pool",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
        migrations.AddField(
            model_name="objective",
            name="region",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
        migrations.AddField(
            model_name="objective",
            name="parts",
            field=models.JSONField(
                blank=True, db_default=models.Value([], models.JSONField()), default=list
            ),
        ),
    ]
