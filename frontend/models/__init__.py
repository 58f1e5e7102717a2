"""Models: the catalogue with prices and states, and for staff what changes it."""
