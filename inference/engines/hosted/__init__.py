"""Models of hosted providers: one node for many accounts, keys and regions."""
