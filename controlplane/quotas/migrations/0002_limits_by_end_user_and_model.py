"""Limits of each end user and of single models."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("quotas", "0001_initial")]

    operations = [
        migrations.AlterField(model_name="ratelimit", name="subject_id", field=models.UUIDField()),
        migrations.AddField(
            model_name="ratelimit",
            name="model",
            field=models.CharField(db_default="", default="", max_length=100),
        ),
        migrations.AddField(
            model_name="ratelimit",
            name="per_user",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddConstraint(
            model_name="ratelimit",
            constraint=models.UniqueConstraint(
                fields=("subject_id", "model", "per_user"), name="rate_limit_once_for_a_part"
            ),
        ),
        migrations.AddConstraint(
            model_name="ratelimit",
            constraint=models.CheckConstraint(
                condition=Q(("model", ""), ("per_user", False), _connector="OR"),
                name="rate_limit_for_one_part",
            ),
        ),
    ]
