"""Members and invitations."""
