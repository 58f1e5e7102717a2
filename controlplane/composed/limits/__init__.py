"""Rate limits, and which one binds."""
