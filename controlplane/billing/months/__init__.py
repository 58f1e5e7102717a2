"""Months: which are open or closed, and closing one."""
