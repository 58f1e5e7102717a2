"""Accounts: passwords, second factors, identities of providers, sessions, recovery."""
