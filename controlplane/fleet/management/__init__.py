"""Commands of the fleet app."""
