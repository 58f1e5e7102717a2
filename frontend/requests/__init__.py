"""Requests: the list, and everything recorded about one of them."""
