"""Limits, budgets and prices as changes: drafted, tried on recorded traffic, published, undone."""
