"""Password links know whether the rights of a member stand behind them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0010_ended_keys")]
    operations = [
        migrations.AddField(
            model_name="setuplink",
            name="by_member",
            field=models.BooleanField(default=False, db_default=False),
        )
    ]
