-- The functions belong to the role with policies of its own; gateway and jobs may only call them.
-- (Changing an owner needs CREATE on the schema for the new one, for that moment only.)

GRANT CREATE ON SCHEMA public TO sluice_ledger;
DO $$
DECLARE
    called regprocedure;
    caller text;
BEGIN
    FOR called IN SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = 'public'
          AND p.proname IN ('telemetry_record', 'telemetry_merge', 'telemetry_count',
                            'telemetry_exemplars', 'telemetry_drop_exemplars',
                            'telemetry_rollup_next', 'telemetry_rollup_last',
                            'telemetry_rollup_read', 'telemetry_rollup_write',
                            'telemetry_rollup_usage', 'telemetry_drop_rollups')
    LOOP
        caller := CASE WHEN called::text ~ '^telemetry_(record|merge|count|exemplars)\('
                       THEN 'sluice_gateway' ELSE 'sluice_app' END;
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', called);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', called, caller);
        EXECUTE format('ALTER FUNCTION %s OWNER TO sluice_ledger', called);
    END LOOP;
END $$;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
SELECT telemetry_make_partitions(current_date - 1, current_date + 7);
