"""Approving or refusing what waits for a second person."""
