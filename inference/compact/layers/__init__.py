"""The parts of a decoder layer that are not attention."""
