-- Pools are named, and the name is what must exist.
ALTER TABLE nodes ADD CONSTRAINT node_pool_known
    FOREIGN KEY (pool) REFERENCES pools (name) DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE enrolment_tokens ADD CONSTRAINT enrolment_token_pool_known
    FOREIGN KEY (pool) REFERENCES pools (name) DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE node_hours ADD CONSTRAINT node_hours_bounds
    CHECK (up_ms BETWEEN 0 AND 3600000 AND busy_ms BETWEEN 0 AND up_ms);

-- Pages let nodes in and decide about them; what gateways tell is written by functions.
GRANT SELECT, INSERT, UPDATE ON nodes, node_credentials, enrolment_tokens, model_digests, pool_scales
    TO sluice_app;
GRANT SELECT ON gateways, gateway_queues, node_hours, node_links, node_starts TO sluice_app;
GRANT SELECT ON node_credentials TO sluice_ledger;
GRANT SELECT, UPDATE ON nodes TO sluice_ledger;
GRANT SELECT, INSERT ON node_starts TO sluice_ledger;
GRANT SELECT, INSERT, UPDATE ON model_digests, node_hours TO sluice_ledger;
GRANT SELECT, INSERT, UPDATE, DELETE ON gateways, gateway_queues, node_links TO sluice_ledger;

-- Written every other second and worth nothing after a crash.
ALTER TABLE node_links SET UNLOGGED;
ALTER TABLE gateway_queues SET UNLOGGED;

-- Gateways fetch and serve what is approved, and that is all they need to hear of.
CREATE CONSTRAINT TRIGGER model_digest_added AFTER INSERT ON model_digests
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state = 'approved')
    EXECUTE FUNCTION config_changed();
CREATE CONSTRAINT TRIGGER model_digest_decided AFTER UPDATE ON model_digests
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
