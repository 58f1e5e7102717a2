"""Quotas: how many requests and tokens, and how many at once."""
