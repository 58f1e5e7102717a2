-- Series have one dimension beside the model: route, pool, region, prompt length or status, all the
-- others blank (-1). What has no dimension is of the whole model; the blank model is of all models,
-- and the zero project of all projects. So whatever a page asks for is one series. Rows of everyone
-- from before this, which had all dimensions at once, match no question any more and age away.

ALTER TABLE histogram_minutes ADD COLUMN pool text NOT NULL DEFAULT '',
    ADD COLUMN region text NOT NULL DEFAULT '';
ALTER TABLE histogram_rollups ADD COLUMN pool text NOT NULL DEFAULT '',
    ADD COLUMN region text NOT NULL DEFAULT '';

-- Which dimension it is stands before the time in the key: a page reads one dimension of few
-- measures, and the roll-up everything of a short time.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['histogram_minutes', 'histogram_rollups'] LOOP
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', name, name || '_pkey');
        EXECUTE format('ALTER TABLE %I ADD COLUMN dimension smallint NOT NULL GENERATED ALWAYS AS '
                       '(CASE WHEN route <> '''' THEN CASE WHEN prompt_bucket >= 0 THEN -1 ELSE 1 END '
                       'WHEN pool <> '''' THEN 2 WHEN region <> '''' THEN 3 '
                       'WHEN prompt_bucket >= 0 THEN 4 WHEN status_class >= 0 THEN 5 ELSE 0 END) '
                       'STORED', name);
    END LOOP;
END $$;
ALTER TABLE histogram_minutes ADD PRIMARY KEY (
    organization, project, measure, dimension, minute, model, route, pool, region, prompt_bucket,
    status_class, writer);
CREATE INDEX histogram_minutes_by_time ON histogram_minutes (minute);
ALTER TABLE histogram_rollups ADD PRIMARY KEY (
    organization, project, measure, dimension, step_s, at, model, route, pool, region,
    prompt_bucket, status_class);
CREATE INDEX histogram_rollups_by_time ON histogram_rollups (step_s, at);

-- Thirty days are read in steps of six hours.
ALTER TABLE histogram_rollups DROP CONSTRAINT histogram_rollups_step_s_check;
ALTER TABLE histogram_rollups ADD CONSTRAINT histogram_rollups_step_s_check
    CHECK (step_s IN (300, 3600, 21600, 86400));
ALTER TABLE usage_rollups DROP CONSTRAINT usage_rollups_step_s_check;
ALTER TABLE usage_rollups ADD CONSTRAINT usage_rollups_step_s_check
    CHECK (step_s IN (300, 3600, 21600, 86400));

DROP FUNCTION IF EXISTS telemetry_merge(uuid, bigint[], uuid[], uuid[], text[], text[], text[],
                                        smallint[], smallint[], text[]);
DROP FUNCTION telemetry_rollup_read(integer, timestamptz, timestamptz);
DROP FUNCTION IF EXISTS telemetry_rollup_write(integer, timestamptz, uuid[], uuid[], text[], text[],
                                               text[], smallint[], smallint[], bytea[]);
