"""One step as tensors, padded to few sizes, and which rows attend to what."""
