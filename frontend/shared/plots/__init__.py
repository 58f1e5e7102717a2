"""Charts as data, for any page."""
