"""Measurements: each module is one command that prints a table and, last, one line of JSON."""
