"""Organizations may require a second factor of their members."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0008_key_ends_by")]
    operations = [
        migrations.AddField(
            model_name="organization",
            name="second_factor_required",
            field=models.BooleanField(default=False),
        )
    ]
