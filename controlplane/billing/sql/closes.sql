-- Months that are closed, what reconciliation found, and budgets' alerts.

CREATE TABLE period_closes (
    id uuid NOT NULL PRIMARY KEY,
    organization uuid NOT NULL,
    period text NOT NULL CHECK (period ~ '^[0-9]{4}-[0-9]{2}$'),
    begins timestamptz NOT NULL,
    ends timestamptz NOT NULL CHECK (ends > begins),
    transfers bigint NOT NULL CHECK (transfers >= 0),
    entries bigint NOT NULL CHECK (entries >= 0),
    -- {"<account>": [debited, credited]} of what posts, in nano-USD.
    totals jsonb NOT NULL,
    last_booked_at timestamptz CHECK (last_booked_at < ends),
    -- SHA-256 over the period's lines, then its entries, each in order of booking.
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    reconciliation uuid NOT NULL,
    closed_by text NOT NULL,
    closed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT period_closed_once UNIQUE (organization, period)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON period_closes
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON period_closes
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse_change();

CREATE TABLE reconciliations (
    id uuid NOT NULL PRIMARY KEY,
    organization uuid NOT NULL,
    begins timestamptz NOT NULL,
    ends timestamptz NOT NULL CHECK (ends > begins),
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    requests bigint NOT NULL,
    findings bigint NOT NULL,
    -- Tokens that one side has and another has not; zero where all agree.
    unaccounted_tokens bigint NOT NULL CHECK (unaccounted_tokens >= 0),
    unaccounted_nano bigint NOT NULL CHECK (unaccounted_nano >= 0),
    -- [{"kind", "subject", "tokens", "nano", "told"}], the first of each kind.
    examples jsonb NOT NULL
);
CREATE INDEX reconciliations_by_time ON reconciliations (organization, made_at DESC);

CREATE TABLE budget_alerts (
    budget uuid NOT NULL,
    began_at timestamptz NOT NULL,
    percent smallint NOT NULL,
    organization uuid NOT NULL,
    spent bigint NOT NULL,
    allowance bigint NOT NULL,
    raised_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (budget, began_at, percent)
);
