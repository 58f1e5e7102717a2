"""The configuration in memory and the Keys port."""
