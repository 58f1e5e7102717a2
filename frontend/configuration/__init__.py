"""Configuration as code: export, compare, apply."""
