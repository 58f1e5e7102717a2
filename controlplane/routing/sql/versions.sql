-- A version's content changes in a draft alone, and no row is ever removed.
CREATE TRIGGER rule_set_life BEFORE UPDATE ON rule_sets
    FOR EACH ROW EXECUTE FUNCTION version_guard('the rules');
CREATE TRIGGER rule_set_kept BEFORE DELETE ON rule_sets
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
GRANT SELECT, INSERT, UPDATE ON rule_sets TO sluice_app;
GRANT SELECT ON rule_sets TO sluice_ledger;

-- Drafts are nobody's business but the editors': gateways hear of what they are to follow.
CREATE CONSTRAINT TRIGGER rule_set_config_new AFTER INSERT ON rule_sets
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.state IN ('canary', 'published')) EXECUTE FUNCTION config_changed();
CREATE CONSTRAINT TRIGGER rule_set_config AFTER UPDATE ON rule_sets
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.state IN ('canary', 'published') OR NEW.state IN ('canary', 'published'))
    EXECUTE FUNCTION config_changed();
