"""Addresses of channels are sealed again where their key turns over; Teams, PagerDuty, Opsgenie."""

from django.db import migrations, models
from django.db.models import CheckConstraint, Q

GRANT = "GRANT UPDATE (sealed, digest) ON slo_channels TO sluice_app"
REVOKE = "REVOKE UPDATE (sealed, digest) ON slo_channels FROM sluice_app"


class Migration(migrations.Migration):
    dependencies = [
        ("slos", "0004_scopes_and_parts"),
    ]

    operations = [
        migrations.RunSQL(GRANT, REVOKE),
        migrations.RemoveConstraint(model_name="channel", name="channel_kind_known"),
        migrations.AlterField("channel", "kind", models.CharField(max_length=9)),
        migrations.AlterField("delivery", "kind", models.CharField(max_length=9)),
        migrations.AddConstraint(
            model_name="channel",
            constraint=CheckConstraint(
                condition=Q(
                    kind__in=["webhook", "slack", "teams", "pagerduty", "opsgenie", "email"]
                ),
                name="channel_kind_known",
            ),
        ),
    ]
