"""Margin: what was charged against what it cost."""
