CREATE OR REPLACE FUNCTION rule_set_guard() RETURNS trigger LANGUAGE plpgsql
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
