"""Addresses of channels are sealed again where their key turns over."""

from django.db import migrations

GRANT = "GRANT UPDATE (sealed, digest) ON slo_channels TO sluice_app"
REVOKE = "REVOKE UPDATE (sealed, digest) ON slo_channels FROM sluice_app"


class Migration(migrations.Migration):
    dependencies = [
        ("slos", "0003_learned_budgets"),
    ]

    operations = [migrations.RunSQL(GRANT, REVOKE)]
