"""The fleet: pools, nodes, digests and enrolment."""
