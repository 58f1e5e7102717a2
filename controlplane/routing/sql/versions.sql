-- The life of a version: draft, perhaps canary, published, retired. A draft's rules may change;
-- afterwards only its state does, along these lines, and no row is ever removed.
CREATE FUNCTION rule_set_guard() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
    IF (NEW.id, NEW.created_at, NEW.version, NEW.copy_of_id, NEW.created_by_id)
            IS DISTINCT FROM
            (OLD.id, OLD.created_at, OLD.version, OLD.copy_of_id, OLD.created_by_id) THEN
        RAISE EXCEPTION 'what a version of the rules is made as never changes'
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.state <> 'draft' AND (NEW.rules, NEW.note, NEW.revision, NEW.based_on_id)
            IS DISTINCT FROM (OLD.rules, OLD.note, OLD.revision, OLD.based_on_id) THEN
        RAISE EXCEPTION 'version % of the rules is no draft any more', OLD.version
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF (OLD.state || ' to ' || NEW.state) NOT IN (
            'draft to draft', 'draft to canary', 'draft to published', 'draft to retired',
            'canary to canary', 'canary to published', 'canary to retired',
            'published to retired') THEN
        RAISE EXCEPTION 'version % of the rules cannot go from % to %',
            OLD.version, OLD.state, NEW.state USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION rule_set_guard() FROM PUBLIC;

CREATE TRIGGER rule_set_life BEFORE UPDATE ON rule_sets
    FOR EACH ROW EXECUTE FUNCTION rule_set_guard();
CREATE TRIGGER rule_set_kept BEFORE DELETE ON rule_sets
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
GRANT UPDATE ON rule_sets TO sluice_app;

-- Drafts are nobody's business but the editors': gateways hear of what they are to follow.
CREATE CONSTRAINT TRIGGER rule_set_config_new AFTER INSERT ON rule_sets
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.state IN ('canary', 'published')) EXECUTE FUNCTION config_changed();
CREATE CONSTRAINT TRIGGER rule_set_config AFTER UPDATE ON rule_sets
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.state IN ('canary', 'published') OR NEW.state IN ('canary', 'published'))
    EXECUTE FUNCTION config_changed();
