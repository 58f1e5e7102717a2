"""Connections to hosted providers: their sealed keys, the models taken from them, what is spent."""
