"""How long projects keep what was said, under which key, and who may read it."""

import django.contrib.postgres.fields
from django.db import migrations, models

import controlplane.tenants.models

ROLES = ["owner", "admin", "developer", "finance", "viewer"]


class Migration(migrations.Migration):
    dependencies = [("tenants", "0004_batches_endpoint")]

    operations = [
        migrations.AddField(
            model_name="project",
            name="keeps_days",
            field=models.SmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="project",
            name="content_key",
            field=models.BinaryField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="project",
            name="content_readers",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=9),
                db_default=["owner"],
                default=controlplane.tenants.models.owners_alone,
                size=None,
            ),
        ),
        migrations.AddConstraint(
            model_name="project",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("content_key", None), ("keeps_days", 0)),
                    models.Q(("content_key__isnull", False), ("keeps_days__range", (1, 365))),
                    _connector="OR",
                ),
                name="project_keeps_under_a_key",
            ),
        ),
        migrations.AddConstraint(
            model_name="project",
            constraint=models.CheckConstraint(
                condition=models.Q(("content_readers__contained_by", ROLES)),
                name="project_content_readers_known",
            ),
        ),
    ]
