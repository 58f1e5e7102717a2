"""A model that embeds has no output to bound."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0002_guards")]

    operations = [
        migrations.RemoveConstraint(model_name="model", name="model_output_bounds"),
        migrations.AddConstraint(
            model_name="model",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("output_tokens_default", 0), ("output_tokens_max", 0), ("task", "embed")
                )
                | models.Q(
                    ("output_tokens_default__gte", 1),
                    ("task", "generate"),
                    ("output_tokens_default__lte", models.F("output_tokens_max")),
                    ("output_tokens_max__lte", models.F("context_window")),
                ),
                name="model_output_bounds",
            ),
        ),
    ]
