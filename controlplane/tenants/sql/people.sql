-- A membership is seen by who is in it, as `app.person`, and within its organization; an invitation
-- within its organization alone: its link names the organization. What belongs to one person is
-- read by that person's id.
ALTER TABLE memberships ENABLE ROW LEVEL SECURITY;
ALTER TABLE memberships FORCE ROW LEVEL SECURITY;
CREATE POLICY membership_tenant ON memberships TO sluice_app USING (
    organization_id = ANY (
        (SELECT nullif(current_setting('app.orgs', true), '')::uuid[])::uuid[]
    )
);
CREATE POLICY membership_own ON memberships FOR SELECT TO sluice_app USING (
    user_id = (SELECT nullif(current_setting('app.person', true), '')::uuid)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON memberships TO sluice_app;

ALTER TABLE invitations ADD CONSTRAINT invitation_digest_length CHECK (octet_length(digest) = 32);
ALTER TABLE invitations ENABLE ROW LEVEL SECURITY;
ALTER TABLE invitations FORCE ROW LEVEL SECURITY;
CREATE POLICY invitation_tenant ON invitations TO sluice_app USING (
    organization_id = ANY (
        (SELECT nullif(current_setting('app.orgs', true), '')::uuid[])::uuid[]
    )
);
GRANT SELECT, INSERT, UPDATE ON invitations TO sluice_app;

-- Gateways hear of people whose Playground tokens have ended, and of nothing else about them.
GRANT SELECT (id, tokens_from) ON users TO sluice_ledger;
GRANT SELECT, INSERT, UPDATE, DELETE ON users TO sluice_app;
CREATE CONSTRAINT TRIGGER user_tokens_config AFTER UPDATE OF tokens_from ON users
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
