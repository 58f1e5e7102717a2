-- One compact row per request, and histograms and usage counters by minute and rolled up.
-- A global series carries the zero UUID as its organization and project, so that keys need no NULL.
-- Series have one dimension beside the model: route, pool, region, prompt length or status, all the
-- others blank (-1). What has no dimension is of the whole model; the blank model is of all models,
-- and the zero project of all projects. So whatever a page asks for is one series.

CREATE TABLE request_records (
    request uuid NOT NULL PRIMARY KEY,
    organization uuid NOT NULL,
    project uuid NOT NULL,
    key uuid NOT NULL,
    started_at timestamptz NOT NULL,
    cost_nano bigint NOT NULL,
    total_us bigint NOT NULL,
    ttft_us bigint NOT NULL,
    prompt_tokens integer NOT NULL,
    cached_tokens integer NOT NULL,
    output_tokens integer NOT NULL,
    status smallint NOT NULL,
    stream boolean NOT NULL,
    model text NOT NULL,
    route text NOT NULL,
    node text NOT NULL,
    pool text NOT NULL,
    region text NOT NULL,
    operation text NOT NULL,
    error_code text NOT NULL,
    finish text NOT NULL,
    safety text NOT NULL,
    spans bytea NOT NULL,
    receipt bytea NOT NULL
) PARTITION BY RANGE (request);
CREATE INDEX request_records_by_project ON request_records (project, request);

CREATE TABLE histogram_minutes (
    minute timestamptz NOT NULL,
    writer uuid NOT NULL,
    organization uuid NOT NULL,
    project uuid NOT NULL,
    measure text NOT NULL,
    model text NOT NULL,
    route text NOT NULL,
    prompt_bucket smallint NOT NULL,
    status_class smallint NOT NULL,
    data bytea NOT NULL,
    pool text NOT NULL DEFAULT '',
    region text NOT NULL DEFAULT '',
    -- Stands before the time in the key: a page reads one dimension of few measures, and the roll-up
    -- everything of a short time.
    dimension smallint NOT NULL GENERATED ALWAYS AS (
        CASE WHEN route <> '' THEN CASE WHEN prompt_bucket >= 0 THEN -1 ELSE 1 END
             WHEN pool <> '' THEN 2 WHEN region <> '' THEN 3
             WHEN prompt_bucket >= 0 THEN 4 WHEN status_class >= 0 THEN 5 ELSE 0 END) STORED,
    PRIMARY KEY (organization, project, measure, dimension, minute, model, route, pool, region,
                 prompt_bucket, status_class, writer)
) PARTITION BY RANGE (minute);
CREATE INDEX histogram_minutes_by_time ON histogram_minutes (minute);

CREATE TABLE histogram_rollups (
    step_s integer NOT NULL CHECK (step_s IN (300, 3600, 21600, 86400)),
    at timestamptz NOT NULL,
    organization uuid NOT NULL,
    project uuid NOT NULL,
    measure text NOT NULL,
    model text NOT NULL,
    route text NOT NULL,
    prompt_bucket smallint NOT NULL,
    status_class smallint NOT NULL,
    data bytea NOT NULL,
    pool text NOT NULL DEFAULT '',
    region text NOT NULL DEFAULT '',
    dimension smallint NOT NULL GENERATED ALWAYS AS (
        CASE WHEN route <> '' THEN CASE WHEN prompt_bucket >= 0 THEN -1 ELSE 1 END
             WHEN pool <> '' THEN 2 WHEN region <> '' THEN 3
             WHEN prompt_bucket >= 0 THEN 4 WHEN status_class >= 0 THEN 5 ELSE 0 END) STORED,
    PRIMARY KEY (organization, project, measure, dimension, step_s, at, model, route, pool, region,
                 prompt_bucket, status_class)
);
CREATE INDEX histogram_rollups_by_time ON histogram_rollups (step_s, at);

CREATE TABLE usage_minutes (
    minute timestamptz NOT NULL,
    writer uuid NOT NULL,
    organization uuid NOT NULL,
    project uuid NOT NULL,
    key uuid NOT NULL,
    model text NOT NULL,
    route text NOT NULL,
    requests bigint NOT NULL,
    errors bigint NOT NULL,
    uncached bigint NOT NULL,
    cached bigint NOT NULL,
    output bigint NOT NULL,
    nano bigint NOT NULL,
    -- Requests whose client went away before the end: neither answered nor errors.
    gone bigint NOT NULL DEFAULT 0,
    -- Prompt tokens that were cached at the best node of the fleet, and at the node that was chosen:
    -- beside those delivered they tell a poor workload, a poor choice and a stale index apart.
    available bigint NOT NULL DEFAULT 0,
    captured bigint NOT NULL DEFAULT 0,
    -- Revenue is split over the pools that served it.
    pool text NOT NULL DEFAULT '',
    PRIMARY KEY (minute, organization, project, key, model, route, pool, writer)
) PARTITION BY RANGE (minute);

CREATE TABLE usage_rollups (
    step_s integer NOT NULL CHECK (step_s IN (300, 3600, 21600, 86400)),
    at timestamptz NOT NULL,
    organization uuid NOT NULL,
    project uuid NOT NULL,
    key uuid NOT NULL,
    model text NOT NULL,
    route text NOT NULL,
    requests bigint NOT NULL,
    errors bigint NOT NULL,
    uncached bigint NOT NULL,
    cached bigint NOT NULL,
    output bigint NOT NULL,
    nano bigint NOT NULL,
    gone bigint NOT NULL DEFAULT 0,
    available bigint NOT NULL DEFAULT 0,
    captured bigint NOT NULL DEFAULT 0,
    pool text NOT NULL DEFAULT '',
    PRIMARY KEY (step_s, at, organization, project, key, model, route, pool)
);

-- From a percentile to a request that took so long: one for every project, measure, model and octave
-- of values (2^(octave-1) <= value < 2^octave) in five minutes. A later one replaces an earlier.

CREATE TABLE exemplars (
    organization uuid NOT NULL,
    project uuid NOT NULL,
    measure text NOT NULL,
    model text NOT NULL,
    octave smallint NOT NULL,
    at timestamptz NOT NULL,
    value_us bigint NOT NULL,
    request uuid NOT NULL,
    PRIMARY KEY (organization, measure, at, octave, project, model)
);
CREATE INDEX exemplars_by_time ON exemplars (at);
