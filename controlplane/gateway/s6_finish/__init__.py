"""Stage 6: tokens to what the client gets: text, stops, safety, and the shape it asked for."""
