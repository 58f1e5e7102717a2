-- Pages and agents, who come by the same processes; gateways need none of it.
GRANT SELECT, INSERT, UPDATE, DELETE ON hosts, deployments, deployment_replicas TO sluice_app;
