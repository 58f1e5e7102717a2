"""Pools whose nodes must keep tenants' prefix caches apart."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0009_price_rows")]
    operations = [
        migrations.AddField(
            model_name="pool",
            name="separate_caches",
            field=models.BooleanField(default=False),
        ),
    ]
