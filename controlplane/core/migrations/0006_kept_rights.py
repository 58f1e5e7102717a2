"""By which rights a kept answer was given."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("core", "0005_audit_chain")]
    operations = [
        migrations.AddField(
            model_name="keptanswer", name="rights", field=models.JSONField(default=list)
        )
    ]
