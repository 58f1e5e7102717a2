"""Commands of the catalog app."""
