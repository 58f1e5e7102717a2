"""Latency: where time goes, as ladders, groups and heat maps."""
