"""Quotas: requests and tokens per minute."""
