"""The invariants of the ledger, checked from its rows."""
