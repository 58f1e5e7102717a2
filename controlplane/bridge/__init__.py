"""The five ports of the hot path, implemented on PostgreSQL, Redis and Channels."""
