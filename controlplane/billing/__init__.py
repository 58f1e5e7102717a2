"""Money: budgets, holds and the append-only ledger of transfers."""
