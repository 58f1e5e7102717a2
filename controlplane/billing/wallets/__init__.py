"""Wallets: prepaid balances and what goes into them."""
