"""Budgets: what an organization, project or key may spend."""
