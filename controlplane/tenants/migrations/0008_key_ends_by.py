"""Until when a key that was made within another may be rotated on."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0007_admin_keys")]
    operations = [
        migrations.AddField(
            model_name="apikey",
            name="ends_by",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        )
    ]
