"""Blueprint: configuration as one whole, in and out."""
