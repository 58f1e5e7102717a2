"""Keys have endpoints and networks that they open to, and know which key they were rotated from."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_people")]
    operations = [
        migrations.AddField(
            model_name="apikey",
            name="allowed_endpoints",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=16), blank=True, null=True, size=None
            ),
        ),
        migrations.AddField(
            model_name="apikey",
            name="limits_of",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="line",
                to="tenants.apikey",
            ),
        ),
        migrations.AddField(
            model_name="apikey",
            name="networks",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=43), blank=True, default=list, size=None
            ),
        ),
        migrations.AddField(
            model_name="apikey",
            name="read_only",
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name="apikey",
            name="replaces",
            field=models.OneToOneField(
                blank=True,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="replaced_by",
                to="tenants.apikey",
            ),
        ),
        migrations.AddConstraint(
            model_name="apikey",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("allowed_endpoints__isnull", True),
                    (
                        "allowed_endpoints__contained_by",
                        ["chat", "completions", "embeddings", "models", "key"],
                    ),
                    _connector="OR",
                ),
                name="api_key_endpoints_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="apikey",
            constraint=models.CheckConstraint(
                condition=models.Q(("networks__len__lte", 32)), name="api_key_networks_bound"
            ),
        ),
    ]
