"""The rows of each kind of file, a page at a time."""
