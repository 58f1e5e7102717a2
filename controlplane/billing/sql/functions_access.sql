-- Gateways and jobs only call functions; those run as the ledger's role, with policies of its own.
-- (Changing an owner needs CREATE on the schema for the new one, for that moment only.)
GRANT CREATE ON SCHEMA public TO sluice_ledger;
DO $$
DECLARE
    called regprocedure;
    caller text;
BEGIN
    FOR called IN SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = 'public'::regnamespace AND p.proname LIKE 'ledger\_%'
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', called);
        caller := CASE
            WHEN called::text ~ '^ledger_(hold|hold_exact|settle|settle_exact|open)\('
                THEN 'sluice_gateway'
            WHEN called::text ~ ('^ledger_(expire|seal|held_differences|open_totals|make_partitions|'
                                 'journal|budget_set|budget_turn|period_close|period_open)\(')
                THEN 'sluice_app' END;
        IF caller IS NOT NULL THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', called, caller);
        END IF;
        -- Making a partition takes the owner of the table; all else runs as the ledger's role.
        IF called::text !~ '^ledger_(make_partitions|refuse_change|refuse_backdated)\(' THEN
            EXECUTE format('ALTER FUNCTION %s OWNER TO sluice_ledger', called);
        END IF;
    END LOOP;
END $$;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
SELECT ledger_make_partitions(current_date - 1, current_date + 7);
