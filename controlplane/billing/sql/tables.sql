-- The ledger. A transfer moves `amount` nano-USD between a debit and a credit account, so every line
-- balances by itself. Two-phase, by slot of a request: 0 is pending (hold); 1 resolves it (settle
-- posts up to the held amount and voids the rest, release and expire void all of it); 2 posts what
-- came beyond (overage) or after an expiry (late). Every request begins with a hold.
-- A prepaid wallet is a budget row like any other: what was ever put in is its limit, so that holds and
-- settlements need nothing of their own for it.
-- Chart of accounts: `receivable:<organization>` (asset) is debited, `revenue:<model>` credited.

CREATE TABLE budgets (
    id uuid NOT NULL PRIMARY KEY,
    organization uuid NOT NULL,
    lim bigint NOT NULL CHECK (lim BETWEEN 0 AND 4000000000000000000),
    posted bigint NOT NULL DEFAULT 0 CHECK (posted >= 0),
    held bigint NOT NULL DEFAULT 0 CHECK (held >= 0),
    over bigint NOT NULL DEFAULT 0 CHECK (over >= 0),
    -- Set by the last batch that found no room here; lets one UPDATE lock, test and take.
    short boolean NOT NULL DEFAULT false,
    scope text NOT NULL CHECK (scope IN ('key', 'project', 'organization', 'wallet')),
    CONSTRAINT budget_within_limit CHECK (posted + held <= lim + over)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE open_holds (
    request uuid NOT NULL PRIMARY KEY,
    organization uuid NOT NULL,
    project uuid NOT NULL,
    key uuid NOT NULL,
    amount bigint NOT NULL CHECK (amount > 0),
    input_pico bigint NOT NULL CHECK (input_pico >= 0),
    cached_pico bigint NOT NULL CHECK (cached_pico >= 0),
    output_pico bigint NOT NULL CHECK (output_pico >= 0),
    expires_at timestamptz NOT NULL,
    price_version integer NOT NULL,
    model text NOT NULL,
    budgets uuid[] NOT NULL,
    -- A request whose rule names several models is held for at the dearest; the prices of those beside
    -- `model` travel with the hold, so that whoever settles it can charge by the one that served:
    -- {"<model>": {"version": 1, "input_pico": 1, "cached_pico": 1, "output_pico": 1}}. Null without.
    others jsonb
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE transfers (
    request uuid NOT NULL,
    organization uuid NOT NULL,
    project uuid NOT NULL,
    key uuid NOT NULL,
    amount bigint NOT NULL CHECK (amount > 0),
    booked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    input_pico bigint NOT NULL CHECK (input_pico >= 0),
    cached_pico bigint NOT NULL CHECK (cached_pico >= 0),
    output_pico bigint NOT NULL CHECK (output_pico >= 0),
    price_version integer NOT NULL,
    uncached integer NOT NULL DEFAULT 0 CHECK (uncached >= 0),
    cached integer NOT NULL DEFAULT 0 CHECK (cached >= 0),
    output integer NOT NULL DEFAULT 0 CHECK (output >= 0),
    slot smallint NOT NULL,
    kind text NOT NULL,
    debit text NOT NULL,
    credit text NOT NULL,
    model text NOT NULL,
    source text NOT NULL DEFAULT '',
    budgets uuid[],
    others jsonb,
    PRIMARY KEY (request, slot),
    CONSTRAINT transfer_between_two_accounts CHECK (debit <> credit),
    CONSTRAINT transfer_slot_of_kind CHECK (
        CASE slot WHEN 0 THEN kind = 'hold' AND budgets IS NOT NULL
                  WHEN 1 THEN kind IN ('settle', 'release', 'expire')
                  WHEN 2 THEN kind IN ('overage', 'late') ELSE false END)
) PARTITION BY RANGE (request);
-- Rows come almost in the order of their booking: a few pages find any range for the seals.
CREATE INDEX transfers_booked ON transfers USING brin (booked_at) WITH (pages_per_range = 16);

CREATE TABLE ledger_seals (
    number bigint NOT NULL PRIMARY KEY,
    from_at timestamptz NOT NULL,
    to_at timestamptz NOT NULL CHECK (to_at > from_at),
    rows bigint NOT NULL CHECK (rows > 0),
    amount numeric(38, 0) NOT NULL,
    previous bytea NOT NULL,
    digest bytea NOT NULL,
    -- Four bytes for each line, in the lines' order.
    tags bytea
);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON transfers
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON transfers
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ledger_seals
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON ledger_seals
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse_change();

-- Gateways read which budgets there are, not how much is in them: a top-up is no news to them.
CREATE CONSTRAINT TRIGGER budget_config AFTER INSERT ON budgets
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE CONSTRAINT TRIGGER budget_limited AFTER UPDATE OF lim ON budgets
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN ((old.lim < 4000000000000000000) <> (new.lim < 4000000000000000000))
    EXECUTE FUNCTION config_changed();

-- What was agreed on about a budget: beside it, since every hold rewrites the row of the budget.
-- budgets.lim = base + allowance + carried + given (never below 0), where the period began with
-- `base` posted; below 0 where more was spent in it than the budget had been told of.
CREATE TABLE budget_terms (
    budget uuid NOT NULL PRIMARY KEY REFERENCES budgets (id),
    organization uuid NOT NULL,
    allowance bigint NOT NULL CHECK (allowance BETWEEN 0 AND 4000000000000000000),
    -- Unused allowance of the last period, and what reversals gave back in this one.
    carried bigint NOT NULL DEFAULT 0 CHECK (carried >= 0),
    given bigint NOT NULL DEFAULT 0 CHECK (given >= 0),
    base bigint NOT NULL DEFAULT 0,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    turns_at timestamptz CHECK (turns_at > began_at),
    rollover boolean NOT NULL DEFAULT false,
    period text NOT NULL DEFAULT 'none' CHECK (period IN ('none', 'day', 'week', 'month')),
    zone text NOT NULL DEFAULT 'UTC',
    -- Percentages of the allowance at which somebody is told.
    alerts smallint[] NOT NULL DEFAULT '{}'
        CHECK (cardinality(alerts) <= 10 AND 0 < ALL (alerts) AND 1000 >= ALL (alerts)),
    CONSTRAINT budget_turns_by_period CHECK ((period = 'none') = (turns_at IS NULL))
);
CREATE INDEX budget_terms_due ON budget_terms (turns_at) WHERE turns_at IS NOT NULL;
