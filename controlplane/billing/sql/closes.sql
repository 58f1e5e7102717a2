-- Months that are closed, what reconciliation found, and budgets' alerts. Limits are set by
-- `ledger_budget_set` alone from here on.
DROP POLICY tenant_adds ON budgets;
DROP POLICY tenant_limits ON budgets;
REVOKE INSERT, UPDATE ON budgets FROM sluice_app;

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

DO $$
DECLARE
    name text;
    mine text := 'organization = ANY ((SELECT NULLIF(current_setting(''app.orgs'', true), '''')'
                 '::uuid[])::uuid[])';
BEGIN
    FOREACH name IN ARRAY ARRAY['period_closes', 'reconciliations', 'budget_alerts'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('REVOKE ALL ON %I FROM PUBLIC, sluice_app, sluice_gateway', name);
        EXECUTE format('CREATE POLICY functions_all ON %I TO sluice_ledger USING (true) '
                       'WITH CHECK (true)', name);
        EXECUTE format('CREATE POLICY owner_reads ON %I FOR SELECT TO CURRENT_USER USING (true)',
                       name);
        EXECUTE format('CREATE POLICY tenant ON %I TO sluice_app USING (%s)', name, mine);
        EXECUTE format('GRANT SELECT ON %I TO sluice_app', name);
    END LOOP;
END $$;
GRANT SELECT, INSERT ON period_closes TO sluice_ledger;
GRANT INSERT ON reconciliations TO sluice_app;
GRANT INSERT, DELETE ON budget_alerts TO sluice_app;

-- Nothing is booked into a closed month, whatever clock somebody brings.
CREATE FUNCTION ledger_refuse_backdated() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM period_closes c
               WHERE c.organization = NEW.organization AND c.ends > NEW.booked_at) THEN
        RAISE EXCEPTION 'the period of % is closed', NEW.booked_at
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER not_backdated BEFORE INSERT ON journal_entries
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_backdated();
