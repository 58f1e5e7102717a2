"""Spend, budgets, ledger, margin, prices and exports."""
