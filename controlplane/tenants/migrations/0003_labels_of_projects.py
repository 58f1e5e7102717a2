"""The labels that a project keeps."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_strict_projects_and_endpoints")]

    operations = [
        migrations.AddField(
            model_name="project",
            name="labels",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=64), db_default=[], default=list, size=None
            ),
        ),
    ]
