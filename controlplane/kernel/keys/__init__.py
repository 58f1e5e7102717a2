"""Keys: their format and scopes, and the Playground's tokens."""
