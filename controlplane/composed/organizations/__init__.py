"""Organizations as staff open and list them."""
