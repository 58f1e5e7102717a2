-- Everything booked that is no request: top-ups, credits, payments, corrections, tax, cost. One row
-- is a debit, a credit and an amount above zero, never changed, like a transfer. What it moves in a
-- wallet and gives back to budgets happens in the same transaction, so neither can be without it.

CREATE TABLE journal_entries (
    id uuid NOT NULL PRIMARY KEY,
    organization uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('topup', 'credit', 'adjustment', 'reversal',
                                       'invoice_rounding', 'tax', 'payment', 'writeoff', 'cogs')),
    debit text NOT NULL,
    credit text NOT NULL,
    amount bigint NOT NULL CHECK (amount BETWEEN 1 AND 1000000000000000000),
    reason text NOT NULL CHECK (reason <> ''),
    reference text NOT NULL,
    -- An entry or a request.
    reverses uuid,
    idempotency text NOT NULL CHECK (idempotency <> ''),
    actor_label text NOT NULL,
    approved_by text NOT NULL,
    booked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    payload_hash bytea NOT NULL,
    CONSTRAINT journal_between_two_accounts CHECK (debit <> credit),
    CONSTRAINT journal_reversal_names_what CHECK ((kind = 'reversal') = (reverses IS NOT NULL)),
    CONSTRAINT journal_once UNIQUE (organization, idempotency)
);
CREATE INDEX journal_by_time ON journal_entries (organization, booked_at, id);
CREATE INDEX journal_reversals ON journal_entries (reverses) WHERE reverses IS NOT NULL;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON journal_entries
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON journal_entries
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse_change();

CREATE TRIGGER not_backdated BEFORE INSERT ON journal_entries
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_backdated();
