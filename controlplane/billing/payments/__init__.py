"""Payments: orders, what providers report, bank transfers, and what is still owed."""
