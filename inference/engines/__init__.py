"""Engines behind one Protocol (`base`); each module adapts one of them."""
