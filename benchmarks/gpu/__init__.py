"""The compact engine on a GPU, against the ceilings of that GPU."""
