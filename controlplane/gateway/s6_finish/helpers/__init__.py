"""What the layers of stage 6 use, and is no layer itself."""
