"""Each kept answer is seen by its own request alone."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("core", "0007_config_marks")]
    operations = [run_sql_file(__file__, "kept_answer_rows.sql")]
