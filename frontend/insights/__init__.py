"""Insights: findings by key, the stage map, comparison and capacity."""
