"""What to mend: prompt hygiene, the stage map, the comparison and the capacity worksheet."""
