-- Good and counted requests of objectives: minutes as gateways write them, and their sums over
-- 5 minutes, hours and days. A writer repeats its whole minute, so that a repeat changes nothing.

CREATE TABLE slo_counts (
    objective uuid NOT NULL,
    step_s integer NOT NULL CHECK (step_s IN (60, 300, 3600, 86400)),
    at timestamptz NOT NULL,
    version integer NOT NULL,
    writer uuid NOT NULL,
    organization uuid NOT NULL,
    good bigint NOT NULL,
    total bigint NOT NULL CHECK (good BETWEEN 0 AND total),
    PRIMARY KEY (objective, step_s, at, version, writer)
);
CREATE INDEX slo_counts_by_time ON slo_counts (step_s, at);
