-- Usage by the pool that served it too: revenue is split over pools by it. Rows from before this have
-- a blank pool.

ALTER TABLE usage_minutes ADD COLUMN pool text NOT NULL DEFAULT '';
ALTER TABLE usage_rollups ADD COLUMN pool text NOT NULL DEFAULT '';
ALTER TABLE usage_minutes DROP CONSTRAINT usage_minutes_pkey;
ALTER TABLE usage_minutes ADD PRIMARY KEY (
    minute, organization, project, key, model, route, pool, writer);
ALTER TABLE usage_rollups DROP CONSTRAINT usage_rollups_pkey;
ALTER TABLE usage_rollups ADD PRIMARY KEY (
    step_s, at, organization, project, key, model, route, pool);

DROP FUNCTION IF EXISTS telemetry_count(uuid, bigint[], uuid[], uuid[], uuid[], text[], text[], text[]);
