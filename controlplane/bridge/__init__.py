"""The ports of the hot path on PostgreSQL, Redis and Channels: a folder for each port."""
