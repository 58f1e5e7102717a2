"""What insights reckon with: capacity, and tokens spent for nothing."""
