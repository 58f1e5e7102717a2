"""Keys have shares and priorities; the newest migration here makes the function itself."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("blueprint", "0001_config_snapshot"), ("tenants", "0004_shares")]
