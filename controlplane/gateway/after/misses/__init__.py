"""Why prompt tokens were not in a cache."""
