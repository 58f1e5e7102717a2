-- A published price is a promise: it is never changed or removed.
CREATE TRIGGER price_immutable BEFORE UPDATE OR DELETE ON price_versions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER price_no_truncate BEFORE TRUNCATE ON price_versions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

GRANT SELECT, INSERT, UPDATE ON models TO sluice_app;
GRANT SELECT, INSERT ON price_versions TO sluice_app;
GRANT SELECT ON models, price_versions TO sluice_ledger;

CREATE CONSTRAINT TRIGGER model_config AFTER INSERT OR UPDATE ON models
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE CONSTRAINT TRIGGER price_config AFTER INSERT ON price_versions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
