-- Prompt templates are a tenant's own: rows are seen in its scope only. What was published never
-- changes; gateways hear of what requests may name.
ALTER TABLE prompt_versions ADD CONSTRAINT prompt_version_in_templates_organization
    FOREIGN KEY (template_id, organization_id) REFERENCES prompt_templates (id, organization_id);
ALTER TABLE prompt_templates ADD CONSTRAINT prompt_in_projects_organization
    FOREIGN KEY (project_id, organization_id) REFERENCES projects (id, organization_id);

ALTER TABLE prompt_templates ENABLE ROW LEVEL SECURITY;
ALTER TABLE prompt_templates FORCE ROW LEVEL SECURITY;
ALTER TABLE prompt_versions ENABLE ROW LEVEL SECURITY;
ALTER TABLE prompt_versions FORCE ROW LEVEL SECURITY;
CREATE POLICY prompt_template_tenant ON prompt_templates TO sluice_app USING (
    organization_id = ANY (
        (SELECT nullif(current_setting('app.orgs', true), '')::uuid[])::uuid[]
    )
);
CREATE POLICY prompt_version_tenant ON prompt_versions TO sluice_app USING (
    organization_id = ANY (
        (SELECT nullif(current_setting('app.orgs', true), '')::uuid[])::uuid[]
    )
);
CREATE POLICY prompt_template_gateway ON prompt_templates FOR SELECT TO sluice_ledger USING (true);
CREATE POLICY prompt_version_gateway ON prompt_versions FOR SELECT TO sluice_ledger USING (true);
GRANT SELECT, INSERT ON prompt_templates TO sluice_app;
GRANT SELECT, INSERT, UPDATE ON prompt_versions TO sluice_app;
GRANT SELECT ON prompt_templates, prompt_versions TO sluice_ledger;

CREATE TRIGGER prompt_version_life BEFORE UPDATE ON prompt_versions
    FOR EACH ROW EXECUTE FUNCTION version_guard('the template');
CREATE TRIGGER prompt_version_kept BEFORE DELETE ON prompt_versions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER prompt_version_no_truncate BEFORE TRUNCATE ON prompt_versions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE CONSTRAINT TRIGGER prompt_version_config_new AFTER INSERT ON prompt_versions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.state IN ('canary', 'published')) EXECUTE FUNCTION config_changed();
CREATE CONSTRAINT TRIGGER prompt_version_config AFTER UPDATE ON prompt_versions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.state IN ('canary', 'published') OR NEW.state IN ('canary', 'published'))
    EXECUTE FUNCTION config_changed();
