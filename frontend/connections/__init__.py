"""Connections: accounts at hosted providers, their keys, models, prices and what they charge."""
