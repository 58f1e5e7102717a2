-- What gateways saw of busy nodes; pages read it, and a job forgets what is old.
GRANT SELECT, DELETE ON node_moments TO sluice_app;
GRANT SELECT, INSERT, UPDATE ON node_moments TO sluice_ledger;
