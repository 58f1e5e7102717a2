"""Who may delete content takes comments of ratings away, and finds them by an index."""

from typing import Any

from django.db import migrations

RIGHTS = """
DROP POLICY IF EXISTS tenant_forgets ON request_records;
CREATE POLICY tenant_forgets ON request_records FOR UPDATE TO sluice_app USING (
    organization = ANY ((SELECT NULLIF(current_setting('app.orgs', true), '')::uuid[])::uuid[])
) WITH CHECK (comment = '');
GRANT UPDATE (comment) ON request_records TO sluice_app;
CREATE INDEX IF NOT EXISTS request_records_commented ON ONLY request_records (project, end_user)
    WHERE comment <> '';
"""
PARTS = """
SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'request_records'::regclass ORDER BY relname
"""


def index_days(apps: Any, editor: Any) -> None:
    """Each day by itself: whoever writes waits for one day's rows at most. Days to come get theirs
    from the parent.
    """
    with editor.connection.cursor() as cursor:
        cursor.execute(PARTS)
        for (part,) in cursor.fetchall():
            cursor.execute(
                f"CREATE INDEX IF NOT EXISTS {part}_commented ON {part} (project, end_user)"
                " WHERE comment <> ''"
            )


class Migration(migrations.Migration):
    # What stands in one transaction would hold all writers up until the last day is read.
    atomic = False
    dependencies = [("telemetry", "0003_rating_of_a_request")]

    operations = [
        migrations.RunSQL(RIGHTS),
        migrations.RunPython(index_days, migrations.RunPython.noop),
    ]
