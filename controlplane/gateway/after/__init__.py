"""What is told of a request once it has ended: its record, why tokens were missed, waste."""
