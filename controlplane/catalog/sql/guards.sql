-- A pool's name is what is said everywhere, so the name is what must exist.
ALTER TABLE models ADD CONSTRAINT model_pool_known
    FOREIGN KEY (pool) REFERENCES pools (name) DEFERRABLE INITIALLY DEFERRED;

-- A published price is a promise: it is never changed or removed.
CREATE TRIGGER price_immutable BEFORE UPDATE OR DELETE ON price_versions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER price_no_truncate BEFORE TRUNCATE ON price_versions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

GRANT SELECT, INSERT, UPDATE ON models, pools TO sluice_app;
GRANT SELECT, INSERT ON price_versions, purchase_prices TO sluice_app;
GRANT SELECT ON models, pools, price_versions TO sluice_ledger;

CREATE CONSTRAINT TRIGGER model_config AFTER INSERT OR UPDATE ON models
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE CONSTRAINT TRIGGER price_config AFTER INSERT ON price_versions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();

-- What was agreed with one project is seen, and published, in the scope of its organization alone;
-- what all pay is seen by everybody.
ALTER TABLE price_versions ENABLE ROW LEVEL SECURITY;
ALTER TABLE price_versions FORCE ROW LEVEL SECURITY;
-- Of projects a query sees those of its scope: their own policy holds here, too.
CREATE POLICY price_tenant ON price_versions TO sluice_app USING (
    project_id IS NULL OR project_id IN (SELECT id FROM projects)
);
CREATE POLICY price_functions ON price_versions FOR SELECT TO sluice_ledger USING (true);
