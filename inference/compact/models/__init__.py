"""The decoder and the shapes of Hugging Face checkpoints that it can take."""
