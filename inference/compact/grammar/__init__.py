"""Output held to a schema, a regular expression or a grammar."""
