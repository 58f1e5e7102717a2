-- What was agreed with one project is seen, and published, in the scope of its organization alone;
-- what all pay is seen by everybody.
ALTER TABLE price_versions ENABLE ROW LEVEL SECURITY;
ALTER TABLE price_versions FORCE ROW LEVEL SECURITY;
-- Of projects a query sees those of its scope: their own policy holds here, too.
CREATE POLICY price_tenant ON price_versions TO sluice_app USING (
    project_id IS NULL OR project_id IN (SELECT id FROM projects)
);
CREATE POLICY price_functions ON price_versions FOR SELECT TO sluice_ledger USING (true);

-- A model's versions, whoever pays them: for staff, and for the number of the next one.
CREATE FUNCTION price_versions_of(p_model uuid) RETURNS SETOF price_versions
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT * FROM price_versions WHERE model_id = p_model
$$;
GRANT CREATE ON SCHEMA public TO sluice_ledger;
ALTER FUNCTION price_versions_of(uuid) OWNER TO sluice_ledger;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
REVOKE ALL ON FUNCTION price_versions_of(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION price_versions_of(uuid) TO sluice_app;
