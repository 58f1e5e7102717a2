"""What a gateway may ask and tell about nodes."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("fleet", "0001_initial"), ("core", "0002_guards")]
    operations = [run_sql_file(__file__, "gateway_functions.sql")]
