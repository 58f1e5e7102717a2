-- One compact row per request, and histograms and usage counters by minute and rolled up.
-- A global series carries the zero UUID as its organization and project, so that keys need no NULL.

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
    PRIMARY KEY (minute, measure, project, model, route, prompt_bucket, status_class, writer)
) PARTITION BY RANGE (minute);

CREATE TABLE histogram_rollups (
    step_s integer NOT NULL CHECK (step_s IN (300, 3600, 86400)),
    at timestamptz NOT NULL,
    organization uuid NOT NULL,
    project uuid NOT NULL,
    measure text NOT NULL,
    model text NOT NULL,
    route text NOT NULL,
    prompt_bucket smallint NOT NULL,
    status_class smallint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (step_s, at, measure, project, model, route, prompt_bucket, status_class)
);

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
    PRIMARY KEY (minute, organization, project, key, model, route, writer)
) PARTITION BY RANGE (minute);

CREATE TABLE usage_rollups (
    step_s integer NOT NULL CHECK (step_s IN (300, 3600, 86400)),
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
    PRIMARY KEY (step_s, at, organization, project, key, model, route)
);
