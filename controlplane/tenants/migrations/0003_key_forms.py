"""A form that is sent twice makes one key."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_guards")]
    operations = [
        migrations.AddField(
            model_name="apikey",
            name="form",
            field=models.UUIDField(blank=True, editable=False, null=True),
        ),
        migrations.AddConstraint(
            model_name="apikey",
            constraint=models.UniqueConstraint(
                fields=("created_by", "form"), name="one_api_key_of_a_form"
            ),
        ),
    ]
