"""The place of the gateways' configuration among the migrations of the apps that it reads.

The function itself is made by the newest migration here: its text names columns of later ones.
"""

from django.db import migrations


class Migration(migrations.Migration):
    initial = True
    dependencies = [
        ("tenants", "0002_guards"),
        ("catalog", "0002_guards"),
        ("quotas", "0002_guards"),
        ("routing", "0002_guards"),
        ("billing", "0002_ledger"),
    ]
