"""Keys have tags and a priority, projects a share of full nodes."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0003_key_forms")]
    operations = [
        migrations.AddField(
            model_name="apikey",
            name="priority",
            field=models.SmallIntegerField(default=1),
        ),
        migrations.AddField(
            model_name="apikey",
            name="tags",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=40), blank=True, default=list, size=None
            ),
        ),
        migrations.AddField(
            model_name="project",
            name="weight",
            field=models.SmallIntegerField(default=1),
        ),
        migrations.AddConstraint(
            model_name="apikey",
            constraint=models.CheckConstraint(
                condition=models.Q(("priority__in", (0, 1, 2))), name="api_key_priority_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="apikey",
            constraint=models.CheckConstraint(
                condition=models.Q(("tags__len__lte", 16)), name="api_key_tags_bound"
            ),
        ),
        migrations.AddConstraint(
            model_name="project",
            constraint=models.CheckConstraint(
                condition=models.Q(("weight__range", (1, 100))), name="project_weight_bounds"
            ),
        ),
    ]
