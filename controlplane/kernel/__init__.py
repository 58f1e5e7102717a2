"""Pure logic that every layer shares: standard library and msgspec only, no Django, no I/O."""
