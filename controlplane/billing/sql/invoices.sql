-- Documents and payments are added and read, never changed; each is seen in its organization's
-- scope. A document's number is the next of its kind in the whole installation: the counter's row
-- stays locked until the document is committed, and goes back with it when it is not.
CREATE TABLE document_numbers (
    kind text NOT NULL PRIMARY KEY,
    last bigint NOT NULL CHECK (last >= 0)
);
INSERT INTO document_numbers VALUES ('invoice', 0), ('statement', 0), ('credit_note', 0);

CREATE TRIGGER numbered BEFORE INSERT ON invoices
    FOR EACH ROW EXECUTE FUNCTION ledger_number_document();
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['invoices', 'payment_orders', 'payments'] LOOP
        EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON %I '
                       'FOR EACH ROW EXECUTE FUNCTION refuse_change()', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['invoices', 'payment_orders', 'payments', 'wallet_grants'] LOOP
        EXECUTE format('CREATE TRIGGER never_truncated BEFORE TRUNCATE ON %I '
                       'FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', name);
    END LOOP;
END $$;
