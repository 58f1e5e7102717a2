-- Prepaid organizations, and budgets that begin anew. A wallet is a budget row like any other: what
-- was ever put in is its limit, so that holds and settlements need nothing of their own for it.
ALTER TABLE budgets DROP CONSTRAINT budgets_scope_check;
ALTER TABLE budgets ADD CONSTRAINT budgets_scope_check
    CHECK (scope IN ('key', 'project', 'organization', 'wallet'));
DROP FUNCTION IF EXISTS ledger_book_settlements(
    uuid[], uuid[], uuid[], uuid[], bigint[], bigint[], text[], integer[], bigint[], bigint[],
    bigint[], text[], text[]);

-- Gateways read which budgets there are, not how much is in them: a top-up is no news to them.
DROP TRIGGER budget_config ON budgets;
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
INSERT INTO budget_terms (budget, organization, allowance)
    SELECT id, organization, lim FROM budgets;
