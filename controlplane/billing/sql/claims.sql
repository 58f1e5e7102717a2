-- Claims on the `Idempotency-Key` of inference requests: a retry is charged once. Only requests
-- that send the header come here. Gateways call functions and read no row; what is kept is sealed
-- with the caller's own API key, which is stored nowhere.
CREATE TABLE inference_claims (
    id bytea PRIMARY KEY CHECK (octet_length(id) = 32),
    organization uuid NOT NULL,
    -- Of the body, keyed by the caller's secret.
    payload bytea NOT NULL CHECK (octet_length(payload) = 32),
    request uuid NOT NULL,
    state text NOT NULL DEFAULT 'claimed' CHECK (state IN ('claimed', 'held', 'done')),
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    answer bytea CHECK (octet_length(answer) <= 400000)
);
CREATE INDEX inference_claims_by_age ON inference_claims (claimed_at);
