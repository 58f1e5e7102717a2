-- What triggers call.

CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never changed or removed', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE OR REPLACE FUNCTION audit_time() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
    -- Whatever a process believes the time is.
    NEW.created_at := clock_timestamp();
    RETURN NEW;
END $$;

-- The number of the configuration that gateways read. Tables attach this as a deferred constraint
-- trigger: the counter's row is locked only while committing, so that two changes can neither
-- deadlock on it nor commit in another order than their numbers. The marks of a row are named by
-- `config_marks_of`, which knows the tables of all apps.
CREATE OR REPLACE FUNCTION config_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
    now_version bigint;
BEGIN
    -- Once per transaction is enough, however many rows it touched.
    IF nullif(current_setting('app.config_bumped', true), '') IS DISTINCT FROM
            pg_current_xact_id()::text THEN
        UPDATE config_version SET version = version + 1 WHERE id = 1;
        PERFORM set_config('app.config_bumped', pg_current_xact_id()::text, true);
        -- Only a nudge: gateways poll as well.
        PERFORM pg_notify('sluice_config', '');
    END IF;
    SELECT version INTO now_version FROM config_version WHERE id = 1;
    INSERT INTO config_marks AS kept (kind, subject, version)
    SELECT m.kind, m.subject, now_version
    FROM config_marks_of(TG_TABLE_NAME, to_jsonb(coalesce(NEW, OLD))) AS m
    ON CONFLICT (kind, subject) DO UPDATE SET version = EXCLUDED.version
        WHERE kept.version < EXCLUDED.version;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION config_changed() FROM PUBLIC;

-- The life of a version of anything: draft, perhaps canary, published, retired. A draft's content
-- may change, afterwards only its state and what comes with that. The argument says of what.
CREATE OR REPLACE FUNCTION version_guard() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
DECLARE
    life text[] := '{state,share_permille,stops_itself,canary_at,published_at,retired_at,
        replaced}';
    content text[] := '{rules,body,content,note,revision,based_on_id}';
    old_row jsonb := to_jsonb(OLD) - life;
    new_row jsonb := to_jsonb(NEW) - life;
BEGIN
    IF new_row - content IS DISTINCT FROM old_row - content THEN
        RAISE EXCEPTION 'what a version of % is made as never changes', TG_ARGV[0]
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.state <> 'draft' AND new_row IS DISTINCT FROM old_row THEN
        RAISE EXCEPTION 'version % of % is no draft any more', OLD.version, TG_ARGV[0]
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF (OLD.state || ' to ' || NEW.state) NOT IN (
            'draft to draft', 'draft to canary', 'draft to published', 'draft to retired',
            'canary to canary', 'canary to published', 'canary to retired',
            'published to retired') THEN
        RAISE EXCEPTION 'version % of % cannot go from % to %',
            OLD.version, TG_ARGV[0], OLD.state, NEW.state USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION version_guard() FROM PUBLIC;
