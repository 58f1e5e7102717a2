"""What a project demands of its requests: refused where they break it, masked on the way in."""
