"""What readers think of an answer; who may delete content takes comments away."""

from django.db import migrations

SQL = """
ALTER TABLE request_records ADD COLUMN rating smallint NOT NULL DEFAULT 0,
                            ADD COLUMN comment text NOT NULL DEFAULT '';
-- Of days to come alone: those that are there have no comments, and reading them would hold up writers.
CREATE INDEX request_records_commented ON ONLY request_records (project, end_user) WHERE comment <> '';
CREATE POLICY tenant_forgets ON request_records FOR UPDATE TO sluice_app USING (
    organization = ANY ((SELECT NULLIF(current_setting('app.orgs', true), '')::uuid[])::uuid[])
) WITH CHECK (comment = '');
GRANT UPDATE (comment) ON request_records TO sluice_app;
"""


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0002_end_user_of_a_request")]

    operations = [migrations.RunSQL(SQL)]
