"""The fleet simulator: the real routing code over virtual nodes, beside other policies."""
