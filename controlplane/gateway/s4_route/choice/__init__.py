"""How one node is chosen among those with room: their costs, and what is said of the choice."""
