"""Find anything by its name or id, from every page."""
