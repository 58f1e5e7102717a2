"""A form that is sent twice makes one enrolment token."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0006_pool_caches")]
    operations = [
        migrations.AddField(
            model_name="enrolmenttoken",
            name="form",
            field=models.UUIDField(blank=True, editable=False, null=True),
        ),
        migrations.AddConstraint(
            model_name="enrolmenttoken",
            constraint=models.UniqueConstraint(
                fields=("created_by", "form"), name="one_enrolment_token_of_a_form"
            ),
        ),
    ]
