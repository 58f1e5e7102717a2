-- Documents and payments are added and read, never changed; each is seen in its organization's
-- scope. A document's number is the next of its kind in the whole installation: the counter's row
-- stays locked until the document is committed, and goes back with it when it is not.
CREATE TABLE document_numbers (
    kind text NOT NULL PRIMARY KEY,
    last bigint NOT NULL CHECK (last >= 0)
);
INSERT INTO document_numbers VALUES ('invoice', 0), ('statement', 0), ('credit_note', 0);
ALTER TABLE document_numbers ENABLE ROW LEVEL SECURITY;
ALTER TABLE document_numbers FORCE ROW LEVEL SECURITY;
CREATE POLICY functions_count ON document_numbers TO sluice_ledger USING (true) WITH CHECK (true);
GRANT SELECT, UPDATE ON document_numbers TO sluice_ledger;

CREATE FUNCTION ledger_number_document() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE document_numbers SET last = last + 1 WHERE kind = NEW.kind RETURNING last INTO NEW.number;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION ledger_number_document() FROM PUBLIC;
CREATE TRIGGER numbered BEFORE INSERT ON invoices
    FOR EACH ROW EXECUTE FUNCTION ledger_number_document();
-- (Changing an owner needs CREATE on the schema for the new one, for that moment only.)
GRANT CREATE ON SCHEMA public TO sluice_ledger;
ALTER FUNCTION ledger_number_document() OWNER TO sluice_ledger;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;

DO $$
DECLARE
    name text;
    mine text := 'organization = ANY ((SELECT NULLIF(current_setting(''app.orgs'', true), '''')'
                 '::uuid[])::uuid[])';
BEGIN
    FOREACH name IN ARRAY ARRAY['billing_profiles', 'invoices', 'wallet_grants', 'payment_orders',
                                'payments'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON %I TO sluice_app USING (%s)', name, mine);
        EXECUTE format('CREATE POLICY owner_reads ON %I FOR SELECT TO CURRENT_USER USING (true)',
                       name);
        EXECUTE format('GRANT SELECT, INSERT ON %I TO sluice_app', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['invoices', 'payment_orders', 'payments'] LOOP
        EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON %I '
                       'FOR EACH ROW EXECUTE FUNCTION refuse_change()', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['invoices', 'payment_orders', 'payments', 'wallet_grants'] LOOP
        EXECUTE format('CREATE TRIGGER never_truncated BEFORE TRUNCATE ON %I '
                       'FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', name);
    END LOOP;
END $$;
GRANT UPDATE ON billing_profiles TO sluice_app;
GRANT UPDATE (state, decided_by, decided_label, decided_at) ON wallet_grants TO sluice_app;
