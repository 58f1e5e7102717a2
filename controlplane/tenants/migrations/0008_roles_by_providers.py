"""Which provider's rules gave a member their role."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0007_policies_of_projects")]

    operations = [
        migrations.AddField(
            model_name="membership",
            name="issuer",
            field=models.CharField(
                blank=True, db_default="", default="", editable=False, max_length=255
            ),
        ),
    ]
