"""Claims on the `Idempotency-Key` of inference requests."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("billing", "0010_exports")]
    operations = [run_sql_file(__file__, "claims.sql")]
