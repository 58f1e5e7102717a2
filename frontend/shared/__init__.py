"""What several groups of pages use; it imports none of them."""
