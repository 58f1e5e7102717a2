"""Inference keys with their limits and budgets."""
