"""Commands of the connections app."""
