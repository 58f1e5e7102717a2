"""Invoices: the document of a month, drafted and issued."""
