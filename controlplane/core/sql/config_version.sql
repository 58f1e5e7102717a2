-- The number of the configuration that gateways read. Tables attach `config_changed` as a deferred
-- constraint trigger: the counter's row is locked only while committing, so that two changes can
-- neither deadlock on it nor commit in another order than their numbers.
INSERT INTO config_version (id, version) VALUES (1, 1);
GRANT SELECT ON config_version TO sluice_app, sluice_ledger;

CREATE FUNCTION config_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
BEGIN
    -- Once per transaction is enough, however many rows it touched.
    IF nullif(current_setting('app.config_bumped', true), '') IS DISTINCT FROM
            pg_current_xact_id()::text THEN
        UPDATE config_version SET version = version + 1 WHERE id = 1;
        PERFORM set_config('app.config_bumped', pg_current_xact_id()::text, true);
        -- Only a nudge: gateways poll as well.
        PERFORM pg_notify('sluice_config', '');
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION config_changed() FROM PUBLIC;
