-- What gateways and jobs may do with what was said. A gateway that does not know yet that a project
-- keeps nothing any more, or has another key, writes nothing: it must have sealed with that key.

CREATE OR REPLACE FUNCTION contents_keep(
    p_replace boolean, p_wrapped bytea[], p_request uuid[], p_organization uuid[],
    p_project uuid[], p_terms text[], p_sealed bytea[]
) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    INSERT INTO kept_contents AS kept (request, organization, project, terms, sealed)
    SELECT n.request, n.organization, n.project, n.terms::bigint[], n.sealed
    FROM unnest(p_wrapped, p_request, p_organization, p_project, p_terms, p_sealed)
             AS n(wrapped, request, organization, project, terms, sealed)
    JOIN projects p ON p.id = n.project AND p.organization_id = n.organization
                   AND p.content_key = n.wrapped
    ON CONFLICT (request) DO UPDATE SET terms = excluded.terms, sealed = excluded.sealed
        WHERE p_replace AND kept.project = excluded.project
$$;

-- Replaces what is kept as in progress, which the hash `p_progress` of its terms tells; whether there
-- was such: of two ends at once, one is the first.
CREATE OR REPLACE FUNCTION contents_end(
    p_progress bigint, p_wrapped bytea, p_request uuid, p_organization uuid, p_project uuid,
    p_terms text, p_sealed bytea
) RETURNS boolean LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH done AS (
        UPDATE kept_contents AS kept SET terms = p_terms::bigint[], sealed = p_sealed
        FROM projects p
        WHERE kept.request = p_request AND kept.project = p_project
          AND p.id = p_project AND p.organization_id = p_organization
          AND p.content_key = p_wrapped AND p_progress = ANY (kept.terms)
        RETURNING 1
    ) SELECT EXISTS (SELECT FROM done)
$$;

CREATE OR REPLACE FUNCTION contents_read(p_project uuid, p_request uuid)
RETURNS TABLE (organization uuid, sealed bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT k.organization, k.sealed FROM kept_contents k JOIN projects p ON p.id = k.project
    WHERE k.request = p_request AND k.project = p_project
      AND k.request >= request_floor(now() - p.keeps_days * interval '1 day')
$$;

CREATE OR REPLACE FUNCTION contents_delete(p_project uuid, p_request uuid) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH forgotten AS (
        UPDATE request_records SET comment = ''
        WHERE request = p_request AND project = p_project AND comment <> ''
    ), gone AS (
        DELETE FROM kept_contents WHERE request = p_request AND project = p_project RETURNING 1
    ) SELECT EXISTS (SELECT FROM gone)
$$;

-- Drops at most `rows_max` that their projects keep no longer; returns how many.
CREATE OR REPLACE FUNCTION contents_forget(rows_max integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH gone AS (
        DELETE FROM kept_contents WHERE request IN (
            SELECT old.request FROM projects p CROSS JOIN LATERAL (
                SELECT k.request FROM kept_contents k
                WHERE k.project = p.id AND (p.keeps_days = 0 OR k.request
                          < request_floor(now() - p.keeps_days * interval '1 day'))
                LIMIT rows_max) old
            LIMIT rows_max)
        RETURNING 1
    ) SELECT count(*) FROM gone
$$;

GRANT EXECUTE ON FUNCTION contents_keep, contents_end, contents_read, contents_delete TO sluice_gateway;
GRANT EXECUTE ON FUNCTION contents_forget TO sluice_app;
