"""A form that is sent twice makes one admin key."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0011_links_of_members")]
    operations = [
        migrations.AddField(
            model_name="adminkey",
            name="form",
            field=models.UUIDField(blank=True, editable=False, null=True),
        ),
        migrations.AddConstraint(
            model_name="adminkey",
            constraint=models.UniqueConstraint(
                fields=("created_by", "form"), name="one_admin_key_of_a_form"
            ),
        ),
    ]
