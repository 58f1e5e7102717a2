CREATE OR REPLACE FUNCTION prompt_version_guard() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
    IF (NEW.id, NEW.organization_id, NEW.template_id, NEW.version, NEW.copy_of_id,
            NEW.created_by_id, NEW.created_at) IS DISTINCT FROM
            (OLD.id, OLD.organization_id, OLD.template_id, OLD.version, OLD.copy_of_id,
            OLD.created_by_id, OLD.created_at) THEN
        RAISE EXCEPTION 'what a version of a template is made as never changes'
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.state <> 'draft' AND (NEW.body, NEW.note, NEW.revision)
            IS DISTINCT FROM (OLD.body, OLD.note, OLD.revision) THEN
        RAISE EXCEPTION 'version % of the template is no draft any more', OLD.version
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF (OLD.state || ' to ' || NEW.state) NOT IN (
            'draft to draft', 'draft to canary', 'draft to published', 'draft to retired',
            'canary to canary', 'canary to published', 'canary to retired',
            'published to retired') THEN
        RAISE EXCEPTION 'version % of the template cannot go from % to %',
            OLD.version, OLD.state, NEW.state USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION prompt_version_guard() FROM PUBLIC;
