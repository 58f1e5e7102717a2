"""Messages may be about a budget: what they say stands in their row."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("slos", "0005_channels_resealed"),
    ]

    operations = [
        migrations.AddField(
            "delivery", "about", models.JSONField(default=dict, blank=True, db_default={})
        ),
    ]
