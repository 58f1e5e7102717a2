"""Objectives: which requests count for them, and how fast their budgets burn."""
