"""The size class of a pool was a label that nothing read."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("catalog", "0002_images")]

    operations = [
        migrations.RemoveConstraint(model_name="pool", name="pool_size_class_known"),
        migrations.RemoveField(model_name="pool", name="size_class"),
    ]
