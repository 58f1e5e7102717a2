"""Files of lines, the batches that run them, and what pages see of both."""

from django.db import migrations, models

TABLES = """
-- Gateways call functions and read no row; pages see batches of their organizations alone. Ids are
-- those of the API, a prefix and a UUIDv7, and times Unix seconds, as the API has them.
CREATE FUNCTION batches_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()))::bigint
$$;

-- `purpose` is '' until its bytes are all here. With `batch` it is the results of its lines: of
-- those that were answered, or, of `failures`, of the others. Its bytes are then the lines' own.
CREATE TABLE batch_files (
    id text COLLATE "C" PRIMARY KEY,
    organization uuid NOT NULL,
    project uuid NOT NULL,
    filename text NOT NULL DEFAULT '' CHECK (length(filename) <= 255),
    purpose text NOT NULL DEFAULT '' CHECK (purpose IN ('', 'batch', 'batch_output')),
    bytes bigint NOT NULL DEFAULT 0 CHECK (bytes >= 0),
    batch text,
    failures boolean NOT NULL DEFAULT false,
    created_at bigint NOT NULL DEFAULT batches_now(),
    expires_at bigint NOT NULL
);
CREATE INDEX batch_files_of ON batch_files (project, id);
CREATE INDEX batch_files_by_expiry ON batch_files (expires_at);
CREATE INDEX batch_files_of_batches ON batch_files (batch) WHERE batch IS NOT NULL;

-- An upload's bytes, cut behind line feeds.
CREATE TABLE batch_parts (
    file text COLLATE "C" NOT NULL REFERENCES batch_files ON DELETE CASCADE,
    number integer NOT NULL CHECK (number > 0),
    data text NOT NULL CHECK (octet_length(data) BETWEEN 1 AND 16777216),
    PRIMARY KEY (file, number)
);

-- `key_id` is the public id of the API key that its lines are run and charged with. Of its file
-- `parts_read` and `lines_read` have become lines or errors, or are blank.
CREATE TABLE batches (
    id text COLLATE "C" PRIMARY KEY,
    organization uuid NOT NULL,
    project uuid NOT NULL,
    key_id text NOT NULL,
    key_label text NOT NULL,
    input_file_id text COLLATE "C" NOT NULL,
    endpoint text NOT NULL,
    metadata jsonb,
    status text NOT NULL DEFAULT 'validating' CHECK (status IN (
        'validating', 'failed', 'in_progress', 'finalizing', 'completed', 'expired', 'cancelling',
        'cancelled')),
    errors jsonb NOT NULL DEFAULT '[]',
    models text[] NOT NULL DEFAULT '{}',
    parts_read integer NOT NULL DEFAULT 0,
    lines_read integer NOT NULL DEFAULT 0,
    total integer NOT NULL DEFAULT 0,
    completed integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    output_bytes bigint NOT NULL DEFAULT 0,
    error_bytes bigint NOT NULL DEFAULT 0,
    output_file_id text COLLATE "C",
    error_file_id text COLLATE "C",
    created_at bigint NOT NULL DEFAULT batches_now(),
    expires_at bigint NOT NULL DEFAULT batches_now() + 86400,
    in_progress_at bigint,
    finalizing_at bigint,
    completed_at bigint,
    failed_at bigint,
    expired_at bigint,
    cancelling_at bigint,
    cancelled_at bigint,
    ended_at bigint,
    CHECK (completed + failed <= total)
);
CREATE INDEX batches_of ON batches (project, id);
CREATE INDEX batches_open ON batches (id) WHERE ended_at IS NULL;

-- `ok` is null until its result is here. `gateway` runs it now, as `request`; that of its last run
-- stays. It is not to be run again before `due_at`.
CREATE TABLE batch_lines (
    batch text COLLATE "C" NOT NULL REFERENCES batches ON DELETE CASCADE,
    number integer NOT NULL CHECK (number > 0),
    custom_id text NOT NULL,
    model text NOT NULL,
    body text NOT NULL,
    request uuid,
    gateway text,
    tries integer NOT NULL DEFAULT 0,
    due_at timestamptz DEFAULT '-infinity',
    ok boolean,
    result text,
    PRIMARY KEY (batch, number)
);
CREATE UNIQUE INDEX batch_lines_named ON batch_lines (batch, custom_id);
CREATE INDEX batch_lines_open ON batch_lines (batch, model, number) WHERE ok IS NULL;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['batch_files', 'batch_parts', 'batches', 'batch_lines'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY functions_all ON %I TO sluice_ledger USING (true)'
                       ' WITH CHECK (true)', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO sluice_ledger', name);
    END LOOP;
END $$;
CREATE POLICY tenant_reads ON batches FOR SELECT TO sluice_app USING (
    organization = ANY ((SELECT NULLIF(current_setting('app.orgs', true), '')::uuid[])::uuid[]));
GRANT SELECT ON batches TO sluice_app;
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = [("billing", "0001_initial"), ("fleet", "0001_initial")]

    operations = [
        migrations.RunSQL(TABLES),
        migrations.CreateModel(
            name="Batch",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("organization", models.UUIDField()),
                ("project", models.UUIDField()),
                ("key_label", models.TextField()),
                ("endpoint", models.TextField()),
                ("status", models.TextField()),
                ("errors", models.JSONField()),
                ("total", models.IntegerField()),
                ("completed", models.IntegerField()),
                ("failed", models.IntegerField()),
                ("output_file_id", models.TextField(null=True)),
                ("error_file_id", models.TextField(null=True)),
                ("created_at", models.BigIntegerField()),
                ("expires_at", models.BigIntegerField()),
            ],
            options={"db_table": "batches", "managed": False},
        ),
    ]
