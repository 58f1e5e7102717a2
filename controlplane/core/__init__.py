"""Base model, permission matrix, audit, and the commands that run the product itself."""
