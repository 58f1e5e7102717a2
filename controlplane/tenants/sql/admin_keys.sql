-- Rows of an organization within its scope; besides, one row to whoever presents a key of its id,
-- before it is known whose it is. Nothing is deleted.
ALTER TABLE admin_keys ADD CONSTRAINT admin_key_digest_length CHECK (octet_length(digest) = 32);
ALTER TABLE admin_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE admin_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY admin_key_tenant ON admin_keys TO sluice_app USING (
    organization_id = ANY (
        (SELECT nullif(current_setting('app.orgs', true), '')::uuid[])::uuid[]
    )
);
CREATE POLICY admin_key_presented ON admin_keys FOR SELECT TO sluice_app USING (
    key_id = (SELECT current_setting('app.admin_key', true))
);
GRANT SELECT, INSERT, UPDATE ON admin_keys TO sluice_app;
