"""What is left over of earlier invoices, taken off the next one."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0013_grants_of_all_kinds")]
    operations = [
        migrations.AddField(
            model_name="invoice",
            name="carried_cents",
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("carried_cents", 0),
                    models.Q(
                        ("carried_cents__gt", 0),
                        ("kind", "invoice"),
                        ("carried_cents__lte", models.F("total_cents")),
                    ),
                    _connector="OR",
                ),
                name="invoice_carries_at_most_its_total",
            ),
        ),
    ]
