"""What is measured and remembered of each node."""
