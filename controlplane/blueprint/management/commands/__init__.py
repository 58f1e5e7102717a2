"""Commands of the blueprint."""
