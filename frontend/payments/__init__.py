"""Invoices, the wallet and top-ups."""
