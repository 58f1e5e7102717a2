"""Rules are versions; the newest migration here makes the function itself."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("blueprint", "0002_config_snapshot_shares"),
        ("routing", "0004_version_guards"),
    ]
