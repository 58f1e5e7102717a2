"""A gateway process: what it is made of, and how it ends."""
