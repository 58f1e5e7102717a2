"""Searching the audit log, of an organization and of the installation."""
