"""A deployment keeps its commit, a replica its window, and a removed host stays until it drained."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("hosts", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="host",
            name="removed_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="deployment",
            name="commit",
            field=models.CharField(blank=True, default="", max_length=100),
        ),
        migrations.AddField(
            model_name="deploymentreplica",
            name="window",
            field=models.PositiveIntegerField(default=4096),
            preserve_default=False,
        ),
    ]
