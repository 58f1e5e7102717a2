"""The Contents port: what was said, sealed."""
