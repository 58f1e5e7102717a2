"""The audit log: entries, their chain, where a change came from, how many may come."""
