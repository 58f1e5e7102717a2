"""The Fleet port, sockets of nodes, and the list of live gateways."""
