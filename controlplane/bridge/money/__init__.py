"""The Ledger, Claims and Standings ports on PostgreSQL."""
