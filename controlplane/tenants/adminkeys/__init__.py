"""Admin keys: an organization's programs on the control API."""
