"""What projects demand of their requests."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0006_cache_of_projects")]

    operations = [
        migrations.AddField(
            model_name="project",
            name="policies",
            field=models.JSONField(db_default={}, default=dict),
        ),
    ]
