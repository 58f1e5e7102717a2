"""Errors before and around views, and the conflict that services raise."""
