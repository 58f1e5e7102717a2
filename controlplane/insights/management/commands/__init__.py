"""Commands of the insights app."""
