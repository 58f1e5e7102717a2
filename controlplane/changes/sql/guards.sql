-- Changes of limits are seen in the scope of their organization, those of prices by whoever may see
-- them; what was published never changes, and no row is ever removed.
ALTER TABLE changes ENABLE ROW LEVEL SECURITY;
ALTER TABLE changes FORCE ROW LEVEL SECURITY;
CREATE POLICY change_tenant ON changes TO sluice_app USING (
    organization_id IS NULL OR organization_id = ANY (
        (SELECT nullif(current_setting('app.orgs', true), '')::uuid[])::uuid[]
    )
);
GRANT SELECT, INSERT, UPDATE ON changes TO sluice_app;

CREATE TRIGGER change_life BEFORE UPDATE ON changes
    FOR EACH ROW EXECUTE FUNCTION version_guard('the change');
CREATE TRIGGER change_kept BEFORE DELETE ON changes
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER change_no_truncate BEFORE TRUNCATE ON changes
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
