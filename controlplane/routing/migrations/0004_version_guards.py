"""What holds for a version's life; the rows that its rules had before are gone."""

from django.db import migrations, models

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("routing", "0003_versions")]
    operations = [
        migrations.DeleteModel("RouteRule"),
        migrations.AddConstraint(
            "ruleset",
            models.CheckConstraint(
                condition=models.Q(state__in=["draft", "canary", "published", "retired"]),
                name="rule_set_state_known",
            ),
        ),
        migrations.AddConstraint(
            "ruleset",
            models.CheckConstraint(
                condition=models.Q(share_permille__lt=1000), name="rule_set_share_bounds"
            ),
        ),
        migrations.AddConstraint(
            "ruleset",
            models.UniqueConstraint(
                condition=models.Q(state="published"),
                fields=["state"],
                name="rule_set_published_once",
            ),
        ),
        migrations.AddConstraint(
            "ruleset",
            models.UniqueConstraint(
                condition=models.Q(state="canary"), fields=["state"], name="rule_set_canary_once"
            ),
        ),
        run_sql_file(__file__, "versions.sql"),
    ]
