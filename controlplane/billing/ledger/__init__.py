"""The ledger: accounts, holds, transfers, the journal, hours, seals, and jobs around them."""
