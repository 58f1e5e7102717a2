"""What a pool's cards cost by the hour, and how many a node has."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0007_prompt_templates")]
    operations = [
        migrations.AddField(
            model_name="pool",
            name="card_hour_micro",
            field=models.PositiveBigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="pool",
            name="cards_per_node",
            field=models.PositiveSmallIntegerField(default=1),
        ),
        migrations.AddConstraint(
            model_name="pool",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("card_hour_micro__lte", 1_000_000_000),
                    ("cards_per_node__gte", 1),
                    ("cards_per_node__lte", 1024),
                ),
                name="pool_cost_bounds",
            ),
        ),
    ]
