"""A budget says of how many requests it was learned."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("slos", "0002_handling"),
    ]

    operations = [
        migrations.AddField(
            model_name="stageowner",
            name="learned_from",
            field=models.IntegerField(default=0),
        ),
    ]
