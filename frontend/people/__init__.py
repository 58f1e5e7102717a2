"""Signing in, accounts, members, projects, organizations and the audit."""
