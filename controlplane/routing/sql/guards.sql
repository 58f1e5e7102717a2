-- A published version of the rules never changes; the newest is in force.
CREATE TRIGGER rule_set_immutable BEFORE UPDATE OR DELETE ON rule_sets
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER route_rule_immutable BEFORE UPDATE OR DELETE ON route_rules
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
GRANT SELECT, INSERT ON rule_sets, route_rules TO sluice_app;
GRANT SELECT ON rule_sets, route_rules TO sluice_ledger;

CREATE CONSTRAINT TRIGGER rule_set_config AFTER INSERT ON rule_sets
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
