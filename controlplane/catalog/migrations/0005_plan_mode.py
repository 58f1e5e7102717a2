"""Who follows the plan of a pool."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0004_removed")]

    operations = [
        migrations.AddField(
            model_name="pool",
            name="plan_mode",
            field=models.CharField(
                choices=[
                    ("advice", "Advice only"),
                    ("signal", "Autoscalers follow it"),
                    ("agents", "Agents follow it, too"),
                ],
                db_default="advice",
                default="advice",
                max_length=6,
            ),
        ),
        migrations.AddConstraint(
            model_name="pool",
            constraint=models.CheckConstraint(
                condition=models.Q(("plan_mode__in", ["advice", "signal", "agents"])),
                name="pool_plan_known",
            ),
        ),
    ]
