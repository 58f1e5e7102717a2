"""Models that are removed: their row stays, since prices and charges refer to it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0003_pools_without_size_class")]

    operations = [
        migrations.AddField(
            model_name="model",
            name="removed_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddConstraint(
            model_name="model",
            constraint=models.CheckConstraint(
                condition=models.Q(("removed_at", None), ("enabled", False), _connector="OR"),
                name="model_removed_is_off",
            ),
        ),
    ]
