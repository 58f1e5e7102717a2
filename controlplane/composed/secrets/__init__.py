"""Secrets of the installation that turn over."""
