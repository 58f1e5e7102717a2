"""Giving back: credit notes of invoices and reversals of requests."""
