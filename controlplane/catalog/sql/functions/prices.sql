-- A model's versions, whoever pays them: for staff, and for the number of the next one.
CREATE OR REPLACE FUNCTION price_versions_of(p_model uuid) RETURNS SETOF price_versions
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT * FROM price_versions WHERE model_id = p_model
$$;
GRANT EXECUTE ON FUNCTION price_versions_of TO sluice_app;
