"""The agent of a host: reports what the host has, and runs the nodes that should run on it."""
