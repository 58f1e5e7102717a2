"""Commands of the billing app."""
