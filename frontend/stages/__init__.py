"""Owners and budgets of the seven stages, and runbooks."""
