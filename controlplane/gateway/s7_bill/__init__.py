"""Stage 7: what it cost, on the ledger before the client hears that it is complete."""
