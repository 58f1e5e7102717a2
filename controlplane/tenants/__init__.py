"""Tenants: organizations, projects, members, roles, API keys."""
