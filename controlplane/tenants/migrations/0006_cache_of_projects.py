"""How long a project's cached prefixes are reused, and by whom."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_kept_contents")]

    operations = [
        migrations.AddField(
            model_name="project",
            name="cache_minutes",
            field=models.SmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="project",
            name="cache_shared",
            field=models.BooleanField(db_default=True, default=True),
        ),
        migrations.AddConstraint(
            model_name="project",
            constraint=models.CheckConstraint(
                condition=models.Q(("cache_minutes__range", (0, 10080))),
                name="project_cache_minutes_bounds",
            ),
        ),
    ]
