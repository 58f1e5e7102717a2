"""Size class by request: what is seen of it, and the classifier that picks."""
