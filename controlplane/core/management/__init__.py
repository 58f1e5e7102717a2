"""Commands of `manage.py` that belong to no other app."""
