"""What the layers of admission use, and is no layer itself."""
