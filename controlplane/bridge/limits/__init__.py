"""The Limiter port on Redis, and on this gateway's share of each limit while Redis is down."""
