"""Engines side by side: each in a process of its own, told what to run by `protocol`."""
