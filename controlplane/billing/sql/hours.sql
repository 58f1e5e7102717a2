-- What was charged, by the hour of its booking: summed from the ledger when it is sealed, so each
-- line counts once. Everything that tells money over time reads this, and never telemetry.

CREATE TABLE ledger_hours (
    organization uuid NOT NULL,
    hour timestamptz NOT NULL,
    project uuid NOT NULL,
    key uuid NOT NULL,
    input_pico bigint NOT NULL,
    cached_pico bigint NOT NULL,
    output_pico bigint NOT NULL,
    -- A request counts in the hour of its settlement; an overage has a line of its own, no request.
    requests bigint NOT NULL,
    uncached bigint NOT NULL,
    cached bigint NOT NULL,
    output bigint NOT NULL,
    nano bigint NOT NULL CHECK (nano > 0),
    price_version integer NOT NULL,
    model text NOT NULL,
    PRIMARY KEY (organization, hour, project, key, model, price_version, input_pico, cached_pico,
                 output_pico)
);
CREATE INDEX ledger_hours_by_hour ON ledger_hours (hour);
