"""What jobs share: heartbeats, bounded steps, one run at a time."""
