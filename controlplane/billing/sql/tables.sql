-- The ledger. A transfer moves `amount` nano-USD between a debit and a credit account, so every line
-- balances by itself. Two-phase, by slot of a request: 0 is pending (hold); 1 resolves it (settle
-- posts up to the held amount and voids the rest, release and expire void all of it); 2 posts what
-- came beyond (overage) or after an expiry (late). Every request begins with a hold.
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
    scope text NOT NULL CHECK (scope IN ('key', 'project', 'organization')),
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
    budgets uuid[] NOT NULL
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
    digest bytea NOT NULL
);

CREATE FUNCTION ledger_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused; correct by adding transfers',
                    TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON transfers
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON transfers
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ledger_seals
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON ledger_seals
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse_change();

-- A new or changed limit is news to every gateway; counters alone are not.
CREATE CONSTRAINT TRIGGER budget_config AFTER INSERT OR UPDATE OF lim ON budgets
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
