"""What dispatching uses, and is no layer itself."""
