"""How many images a request to a model may have, and how many tokens one takes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="model",
            name="images_max",
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="model",
            name="image_tokens_max",
            field=models.PositiveIntegerField(db_default=1280, default=1280),
        ),
        migrations.AddField(
            model_name="model",
            name="image_patch",
            field=models.PositiveSmallIntegerField(db_default=28, default=28),
        ),
        migrations.AddConstraint(
            model_name="model",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("task", "generate"), ("images_max", 0), _connector="OR"),
                    ("image_patch__range", (4, 1024)),
                    ("image_tokens_max__range", (1, 16384)),
                    ("images_max__lte", 64),
                ),
                name="model_image_bounds",
            ),
        ),
    ]
