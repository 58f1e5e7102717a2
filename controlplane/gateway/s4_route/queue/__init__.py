"""Who waits for a node with room, in which order and for how long."""
