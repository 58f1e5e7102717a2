"""Routing policies side by side; all but ours are written from their public descriptions."""
