"""Keys are found by when they ended, so that gateways forget them soon."""

from django.db import migrations, models
from django.db.models.functions import Least


class Migration(migrations.Migration):
    dependencies = [("tenants", "0009_second_factor_required")]
    operations = [
        migrations.AddIndex(
            model_name="apikey",
            index=models.Index(Least("revoked_at", "expires_at"), name="api_key_ended"),
        )
    ]
