"""Backups of a whole installation: made while it serves, and restored into an empty one."""
