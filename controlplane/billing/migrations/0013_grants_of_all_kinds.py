"""Credit notes, reversals and bank payments above the limit wait for a second person, too."""

from django.db import migrations, models

KINDS = ["topup", "credit", "credit_note", "reversal", "payment"]


class Migration(migrations.Migration):
    dependencies = [("billing", "0012_claims")]
    operations = [
        migrations.RemoveConstraint(model_name="walletgrant", name="wallet_grant_kind_known"),
        migrations.AddField(
            model_name="walletgrant",
            name="about",
            field=models.CharField(blank=True, default="", max_length=100),
        ),
        migrations.AddField(
            model_name="walletgrant",
            name="subject",
            field=models.UUIDField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="walletgrant",
            name="terms",
            field=models.JSONField(blank=True, default=dict),
        ),
        migrations.AlterField(
            model_name="walletgrant",
            name="kind",
            field=models.CharField(
                choices=[
                    ("topup", "Top-up"),
                    ("credit", "Credit"),
                    ("credit_note", "Credit note"),
                    ("reversal", "Reversal"),
                    ("payment", "Payment"),
                ],
                max_length=11,
            ),
        ),
        migrations.AddConstraint(
            model_name="walletgrant",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", KINDS)), name="wallet_grant_kind_known"
            ),
        ),
    ]
