"""Faults between gateways and nodes, many of each kind under load, on the real product."""
