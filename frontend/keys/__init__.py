"""API keys, admin keys and the limits that bind them."""
